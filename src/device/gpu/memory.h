// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// Device memory of the library's own, and the mappings of other processes' memory.
///
/// Nothing is given back to the driver before the process ends, and nothing is unmapped when it is closed: to free
/// memory of the device or pinned memory, and to unmap, waits for all kernels that run, and keeps every other call of
/// the process waiting as well (measured: CUDA 13.0, H200; to allocate, map, register and make or destroy streams,
/// events and graphs does not). So it waits for streams that wait for peers, and what these wait for may be enqueued
/// behind it. What is released is used again, and so is a mapping when the same allocation comes again. The engine says
/// when to unmap (device/unmapping.h).
class GpuMemory {
 public:
  explicit GpuMemory(int device) : device_(device) {
    DeviceScope scope(device_);
    stream_ = new_foremost_stream();
  }

  int device() const { return device_; }

  /// Zeroed. A whole number of pages of the driver, so that an exported allocation holds nothing else.
  Allocation allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes + page - 1) / page * page + (bytes == 0 ? page : 0);
    std::lock_guard<std::mutex> hold(mutex_);
    const OwnCalls own(device_);
    void* base = nullptr;
    const auto idle = idle_.find(rounded);
    if (idle != idle_.end()) {
      base = idle->second;
      idle_.erase(idle);
    } else {
      MPIX_CHECK_GPU(gpu_malloc_shared(&base, rounded));
    }
    busy_[base] = rounded;
    MPIX_CHECK_GPU(gpuMemsetAsync(base, 0, rounded, stream_));
    MPIX_CHECK_GPU(gpuStreamSynchronize(stream_));
    return Allocation{static_cast<char*>(base), bytes};
  }

  void release(void* base) noexcept {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = busy_.find(base);
    if (found == busy_.end()) return;
    idle_.emplace(found->second, base);
    busy_.erase(found);
  }

  /// A small read-only copy, from a slab: launches of new plans must not cost an allocation of the driver's.
  std::shared_ptr<const void> upload(const void* data, std::size_t bytes) {
    const std::size_t rounded = bytes <= smallest ? smallest : power_of_two(bytes);
    std::lock_guard<std::mutex> hold(mutex_);
    const OwnCalls own(device_);
    char* place = take(rounded);
    if (bytes > 0) {
      MPIX_CHECK_GPU(gpuMemcpyAsync(place, data, bytes, gpuMemcpyHostToDevice, stream_));
      MPIX_CHECK_GPU(gpuStreamSynchronize(stream_));
    }
    return std::shared_ptr<const void>(place, [this, rounded](const void* p) {
      std::lock_guard<std::mutex> again(mutex_);
      free_places_.emplace(rounded, static_cast<char*>(const_cast<void*>(p)));
    });
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, gpuMemcpyDeviceToHost); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, gpuMemcpyHostToDevice); }

  /// Zeroed memory of the host that kernels reach.
  std::shared_ptr<void> host_memory(std::size_t bytes) {
    const std::size_t rounded = bytes < page ? power_of_two(bytes) : (bytes + page - 1) / page * page;
    std::lock_guard<std::mutex> hold(mutex_);
    const OwnCalls own(device_);
    void* place = nullptr;
    const auto idle = idle_on_host_.find(rounded);
    if (idle != idle_on_host_.end()) {
      place = idle->second;
      idle_on_host_.erase(idle);
    } else {
      MPIX_CHECK_GPU(gpu_host_alloc(&place, rounded));
    }
    std::memset(place, 0, rounded);
    return std::shared_ptr<void>(place, [this, rounded](void* p) {
      std::lock_guard<std::mutex> again(mutex_);
      idle_on_host_.emplace(rounded, p);
    });
  }

  /// For kernels, copies and streams. Like what is mapped, it is unpinned when nothing is enqueued.
  std::shared_ptr<char> pin(std::shared_ptr<char> memory, std::size_t bytes) {
    const OwnCalls own(device_);
    MPIX_CHECK_GPU(gpuHostRegister(memory.get(), bytes, gpuHostRegisterMapped | gpuHostRegisterPortable));
    std::shared_ptr<char> pinned(memory.get(), [this, memory, bytes](char*) {
      std::lock_guard<std::mutex> again(mutex_);
      closed_pins_.push_back({memory, bytes});
    });
    void* there = nullptr;
    MPIX_CHECK_GPU(gpuHostGetDevicePointer(&there, memory.get(), 0));
    if (there != memory.get()) throw Error(Fault::unsupported, "the GPU has another address for memory of the host");
    return pinned;
  }

  /// The allocation around p, when it is device memory of this device that other processes can open.
  std::optional<Allocation> shareable(const void* p) const {
    const OwnCalls own(device_);
    void* base = nullptr;
    std::size_t bytes = 0;
    gpuIpcMemHandle_t handle;
    if (!gpu_address_range(p, &base, &bytes)) return std::nullopt;
    if (gpuIpcGetMemHandle(&handle, base) != gpuSuccess) {  // memory of a stream-ordered pool, managed, …
      (void)gpuGetLastError();
      return std::nullopt;
    }
    return Allocation{static_cast<char*>(base), bytes};
  }

  ExportedMemory export_memory(const void* base) const {
    const OwnCalls own(device_);
    Ticket ticket{};
    ticket.process = own_process();
    ticket.base = reinterpret_cast<std::uintptr_t>(base);
    ticket.id = gpu_allocation_id(base);
    MPIX_CHECK_GPU(gpuIpcGetMemHandle(&ticket.handle, const_cast<void*>(base)));
    ExportedMemory memory{};
    std::memcpy(memory.bytes, &ticket, sizeof ticket);
    return memory;
  }

  /// `unmap`: calls unmap_closed_imports(), or returns false, as something may wait for peers.
  char* import_memory(const ExportedMemory& memory, const std::function<bool()>& unmap) {
    Ticket ticket;
    std::memcpy(&ticket, memory.bytes, sizeof ticket);
    if (ticket.process == own_process()) return reinterpret_cast<char*>(static_cast<std::uintptr_t>(ticket.base));
    std::unique_lock<std::mutex> hold(mutex_);
    if (char* const there = use_again(ticket)) return there;
    const OwnCalls own(device_);
    void* base = nullptr;
    gpuError_t error = gpuIpcOpenMemHandle(&base, ticket.handle, gpuIpcMemLazyEnablePeerAccess);
    if (error ==
        gpuErrorAlreadyMapped) {  // the place of an allocation that is mapped still, and that its owner has freed
      (void)gpuGetLastError();
      hold.unlock();  // the locks of windows come before this one
      if (!unmap())
        throw Error(Fault::unsupported,
                    "memory that its owner has freed is still mapped in its place, and cannot be unmapped while "
                    "streams may wait for other ranks: map it when what else is enqueued is over");
      hold.lock();
      if (char* const there = use_again(ticket)) return there;  // another thread was faster
      error = gpuIpcOpenMemHandle(&base, ticket.handle, gpuIpcMemLazyEnablePeerAccess);
    }
    if (error != gpuSuccess) {
      (void)gpuGetLastError();
      throw Error(Fault::unsupported, "GPU " + std::to_string(device_) + " cannot map it (" + gpuGetErrorName(error) +
                                          "): it is memory of a GPU without peer access, or of a process in another "
                                          "container");
    }
    std::size_t bytes = 0;
    void* start = nullptr;
    if (!gpu_address_range(base, &start, &bytes)) bytes = page;
    imports_.push_back(Import{ticket.handle, ticket.id, static_cast<char*>(base), bytes, 1});
    return static_cast<char*>(base);
  }

  /// It stays mapped.
  void close_import(char* base) noexcept {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto import =
        std::find_if(imports_.begin(), imports_.end(), [&](const Import& one) { return one.base == base; });
    if (import != imports_.end()) --import->users;
  }

  std::size_t closed_imports() {
    std::lock_guard<std::mutex> hold(mutex_);
    std::size_t bytes = 0;
    for (const Import& import : imports_)
      if (import.users == 0) bytes += import.bytes;
    for (const Pin& pin : closed_pins_) bytes += pin.bytes;
    return bytes;
  }

  void unmap_closed_imports() noexcept {
    std::lock_guard<std::mutex> hold(mutex_);
    try {
      const OwnCalls own(device_);
      unmap_closed();
    } catch (const Error&) {
      // The process is ending: the driver is gone, and its mappings with it.
    }
  }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;
  static constexpr std::size_t smallest = 256;

  struct Ticket {
    gpuIpcMemHandle_t handle;
    std::uint64_t base;
    std::uint64_t id;
    std::uint64_t process;
  };
  /// No number of the system's: processes in different containers may have the same.
  static std::uint64_t own_process() {
    static const std::uint64_t number = [] {
      std::random_device entropy;
      return std::uint64_t{entropy()} << 32 | entropy();
    }();
    return number;
  }
  static_assert(sizeof(Ticket) <= sizeof(ExportedMemory), "the ticket travels in ExportedMemory");

  /// Known by handle and number: a handle alone may come again for another allocation at the same address.
  struct Import {
    gpuIpcMemHandle_t handle;
    std::uint64_t id;
    char* base;
    std::size_t bytes;
    int users;  ///< 0: closed, and mapped still
  };

  struct Pin {
    std::shared_ptr<char> memory;
    std::size_t bytes;
  };

  /// The mapping of that allocation, if there is one. Under mutex_.
  char* use_again(const Ticket& ticket) {
    for (Import& import : imports_) {
      if (import.id != ticket.id || std::memcmp(&import.handle, &ticket.handle, sizeof ticket.handle) != 0) continue;
      ++import.users;
      return import.base;
    }
    return nullptr;
  }

  void unmap_closed() {  // under mutex_
    for (const Pin& pin : closed_pins_)
      if (gpuHostUnregister(pin.memory.get()) != gpuSuccess) (void)gpuGetLastError();
    closed_pins_.clear();
    for (const Import& import : imports_)
      if (import.users == 0 && gpuIpcCloseMemHandle(import.base) != gpuSuccess) (void)gpuGetLastError();
    imports_.erase(
        std::remove_if(imports_.begin(), imports_.end(), [](const Import& import) { return import.users == 0; }),
        imports_.end());
  }

  void copy(void* to, const void* from, std::size_t bytes, gpuMemcpyKind kind) {
    std::lock_guard<std::mutex> hold(mutex_);
    const OwnCalls own(device_);
    MPIX_CHECK_GPU(gpuMemcpyAsync(to, from, bytes, kind, stream_));
    MPIX_CHECK_GPU(gpuStreamSynchronize(stream_));
  }

  static std::size_t power_of_two(std::size_t bytes) {
    std::size_t power = smallest;
    while (power < bytes) power *= 2;
    return power;
  }

  char* take(std::size_t bytes) {
    const auto found = free_places_.find(bytes);
    if (found != free_places_.end()) {
      char* place = found->second;
      free_places_.erase(found);
      return place;
    }
    if (slab_left_ < bytes) {
      void* slab = nullptr;
      const std::size_t size = bytes > page ? bytes : page;
      MPIX_CHECK_GPU(gpuMalloc(&slab, size));
      slab_ = static_cast<char*>(slab);
      slab_left_ = size;
    }
    char* place = slab_;
    slab_ += bytes;
    slab_left_ -= bytes;
    return place;
  }

  const int device_;
  gpuStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::multimap<std::size_t, void*> idle_;
  std::map<void*, std::size_t> busy_;
  std::multimap<std::size_t, void*> idle_on_host_;
  std::multimap<std::size_t, char*> free_places_;
  char* slab_ = nullptr;
  std::size_t slab_left_ = 0;
  std::vector<Import> imports_;
  std::vector<Pin> closed_pins_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
