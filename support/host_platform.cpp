// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>

#include <cstring>
#include <new>

#include "config.h"
#include "support/platform.h"

namespace support {
namespace {

constexpr std::align_val_t cache_line{64};

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) platform_failure(std::string(call) + " failed");
}

MPIX_Host_stream host(void* stream) { return static_cast<MPIX_Host_stream>(stream); }

class HostPlatform final : public Platform {
 public:
  const char* name() const override { return "host"; }
  std::string describe() const override { return "on a host stream"; }
  bool is_gpu() const override { return false; }

  void* create_stream() override {
    MPIX_Host_stream stream = nullptr;
    check(MPIX_Host_stream_create(&stream), "MPIX_Host_stream_create");
    return stream;
  }
  void destroy_stream(void* stream) override {
    MPIX_Host_stream handle = host(stream);
    check(MPIX_Host_stream_destroy(&handle), "MPIX_Host_stream_destroy");
  }
  void synchronize(void* stream) override {
    check(MPIX_Host_stream_synchronize(host(stream)), "MPIX_Host_stream_synchronize");
  }

  void* allocate(Kind kind, std::size_t bytes) override {
    if (kind != Kind::mapped) return ::operator new(bytes, cache_line);
    MPI_Info info = MPI_INFO_NULL;
    check(MPI_Info_create(&info), "MPI_Info_create");
    check(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"), "MPI_Info_set");
    void* memory = nullptr;
    check(MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), info, &memory), "MPI_Alloc_mem");
    check(MPI_Info_free(&info), "MPI_Info_free");
    return memory;
  }
  void release(Kind kind, void* memory) noexcept override {
    if (kind == Kind::mapped)
      (void)MPI_Free_mem(memory);
    else
      ::operator delete(memory, cache_line);
  }
  bool pin(void*, std::size_t) override { return true; }
  void unpin(void*) noexcept override {}

  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    synchronize(stream);
    if (bytes > 0) std::memcpy(to, from, bytes);  // what is empty may have no address
  }
  void launch(void* stream, const Launchable& kernel) override {
    check(MPIX_Host_stream_launch(host(stream), &run, const_cast<Launchable*>(&kernel)), "MPIX_Host_stream_launch");
  }
  void order(void*, void*) override { platform_failure("streams of the host do not wait for each other"); }
  std::unique_ptr<Graph> capture(void*, const std::function<void()>&) override {
    platform_failure("host streams cannot be captured");
  }

 private:
  static void run(void* kernel) { static_cast<const Launchable*>(kernel)->run_on_host(); }
};

}  // namespace

std::unique_ptr<Platform> make_host_platform() { return std::make_unique<HostPlatform>(); }

#ifndef HAVE_CUDA
std::unique_ptr<Platform> make_cuda_platform(int) { return nullptr; }
#endif
#ifndef HAVE_HIP
std::unique_ptr<Platform> make_hip_platform(int) { return nullptr; }
#endif

}  // namespace support
