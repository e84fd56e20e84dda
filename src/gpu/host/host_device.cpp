// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu/host/host_device.h"

#include <sched.h>

#include <cstring>

#include "core/settings.h"
#include "gpu/host/shared_memory.h"
#include "gpu/host/stream.h"

namespace mpix {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// A rank polls longer when a core is its own; otherwise the peer it waits for needs the core.
std::chrono::nanoseconds spin_of(const Settings& settings, int local_ranks) {
  if (settings.spin_seconds >= 0)
    return std::chrono::nanoseconds(static_cast<std::int64_t>(settings.spin_seconds * 1e9));
  return local_ranks <= usable_cores() ? std::chrono::microseconds(100) : std::chrono::microseconds(0);
}

class HostDevice final : public Device {
 public:
  HostDevice(const Settings& settings, int local_ranks) { set_host_spin(spin_of(settings, local_ranks)); }

  const char* name() const noexcept override { return "host"; }

  Allocation allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void release(void* base) noexcept override { memory_.release(base); }
  std::optional<Allocation> shareable(const void* p) const override { return memory_.find(p); }

  ExportedMemory export_memory(const void* base) override { return memory_.export_memory(base); }
  char* import_memory(const ExportedMemory& memory) override { return memory_.import_memory(memory); }
  void close_import(char* base) noexcept override { memory_.close_import(base); }

  std::shared_ptr<const void> upload(const void* data, std::size_t bytes) override {
    std::shared_ptr<char> copy(static_cast<char*>(::operator new(bytes, alignment)),
                               [](char* p) { ::operator delete(p, alignment); });
    if (bytes) std::memcpy(copy.get(), data, bytes);
    return copy;
  }

  std::shared_ptr<HostWords> host_words() override { return std::make_shared<HostWords>(); }

  void check_stream(Stream stream) const override { check_host_stream(stream); }
  void launch(Stream stream, const Launch& launch) override { host_stream_launch(stream, launch); }

 private:
  static constexpr std::align_val_t alignment{64};
  SharedMemory memory_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const Settings& settings, int local_ranks) {
  return std::make_unique<HostDevice>(settings, local_ranks);
}

}  // namespace mpix
