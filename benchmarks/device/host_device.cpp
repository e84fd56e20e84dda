// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include "device.h"

namespace bench {
namespace {

constexpr std::align_val_t cache_line{64};

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw std::runtime_error(std::string(call) + " failed");
}

class HostDevice : public Device {
 public:
  const char* name() const override { return "host"; }
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, cache_line); }
  void release(void* memory) noexcept override { ::operator delete(memory, cache_line); }
  void* allocate_on_host(std::size_t bytes) override { return allocate(bytes); }
  void release_on_host(void* memory) noexcept override { release(memory); }
  bool pin(void*, std::size_t) override { return true; }
  void unpin(void*) noexcept override {}
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy_from_host(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  bool is_gpu() const override { return false; }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override {
    throw std::runtime_error("host streams cannot be captured");
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes) {
    synchronize();
    if (bytes > 0) std::memcpy(to, from, bytes);  // of no rows, which have no address
  }
};

class InlineHostDevice final : public HostDevice {
 public:
  std::string describe() const override { return "called on the main thread"; }
  void launch(const Launchable& kernel) override { kernel.run_on_host(); }
  void synchronize() override {}
  void* stream() override { return nullptr; }
};

class HostStreamDevice final : public HostDevice {
 public:
  HostStreamDevice() { check(MPIX_Host_stream_create(&stream_), "MPIX_Host_stream_create"); }
  ~HostStreamDevice() override { (void)MPIX_Host_stream_destroy(&stream_); }
  HostStreamDevice(const HostStreamDevice&) = delete;
  HostStreamDevice& operator=(const HostStreamDevice&) = delete;

  std::string describe() const override { return "on a host stream"; }
  void launch(const Launchable& kernel) override {
    check(MPIX_Host_stream_launch(stream_, &run, const_cast<Launchable*>(&kernel)), "MPIX_Host_stream_launch");
  }
  void synchronize() override { check(MPIX_Host_stream_synchronize(stream_), "MPIX_Host_stream_synchronize"); }
  void* stream() override { return stream_; }

 private:
  static void run(void* kernel) { static_cast<const Launchable*>(kernel)->run_on_host(); }

  MPIX_Host_stream stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_inline_host_device() { return std::make_unique<InlineHostDevice>(); }
std::unique_ptr<Device> make_host_stream_device() { return std::make_unique<HostStreamDevice>(); }

}  // namespace bench
