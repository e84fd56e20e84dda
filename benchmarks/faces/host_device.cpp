// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <mpix.h>

#include <cstring>
#include <new>

#include "device.h"
#include "mpi_check.h"

namespace faces {
namespace {

constexpr std::align_val_t cache_line{64};

class HostDevice : public Device {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, cache_line); }
  void release(void* memory) noexcept override { ::operator delete(memory, cache_line); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    synchronize();
    std::memcpy(to, from, bytes);
  }
};

class InlineHostDevice final : public HostDevice {
 public:
  const char* describe() const override { return "called on the main thread"; }
  void launch(const Launchable& kernel) override { kernel.run_on_host(); }
  void synchronize() override {}
  void* stream() override { return nullptr; }
};

class HostStreamDevice final : public HostDevice {
 public:
  HostStreamDevice() { FACES_MPI(MPIX_Host_stream_create(&stream_)); }
  ~HostStreamDevice() override { FACES_MPI(MPIX_Host_stream_destroy(&stream_)); }
  HostStreamDevice(const HostStreamDevice&) = delete;
  HostStreamDevice& operator=(const HostStreamDevice&) = delete;

  const char* describe() const override { return "on a host stream"; }
  void launch(const Launchable& kernel) override {
    FACES_MPI(MPIX_Host_stream_launch(stream_, &run, const_cast<Launchable*>(&kernel)));
  }
  void synchronize() override { FACES_MPI(MPIX_Host_stream_synchronize(stream_)); }
  void* stream() override { return stream_; }

 private:
  static void run(void* kernel) { static_cast<const Launchable*>(kernel)->run_on_host(); }

  MPIX_Host_stream stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_inline_host_device() {
  return std::make_unique<InlineHostDevice>();
}
std::unique_ptr<Device> make_host_stream_device() {
  return std::make_unique<HostStreamDevice>();
}

}  // namespace faces
