// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "support/platform.h"

namespace bench {

/// Where the data lives and kernels run, with one stream. What a GPU refuses throws std::runtime_error.
class Device {
 public:
  enum class Kernels { on_stream, on_this_thread };  ///< the latter on the host: at once
  Device(std::unique_ptr<support::Platform> platform, Kernels kernels);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const char* name() const { return platform_->name(); }
  std::string describe() const;
  bool is_gpu() const { return platform_->is_gpu(); }
  void* stream() { return stream_; }  ///< for the calls of libmpix; null where kernels run on the calling thread

  void* allocate(std::size_t bytes) { return platform_->allocate(own_kind(), bytes); }  ///< throws std::bad_alloc
  void release(void* memory) noexcept { platform_->release(own_kind(), memory); }
  /// Memory of the CPU that the device copies to and from at full speed.
  void* allocate_on_host(std::size_t bytes) { return platform_->allocate(support::Kind::pinned, bytes); }
  void release_on_host(void* memory) noexcept { platform_->release(support::Kind::pinned, memory); }
  bool pin(void* memory, std::size_t bytes) { return platform_->pin(memory, bytes); }
  void unpin(void* memory) noexcept { platform_->unpin(memory); }

  // In stream order; done for certain after synchronize().
  void copy(void* to, const void* from, std::size_t bytes);
  void launch(const support::Launchable& kernel);
  void synchronize();
  /// Only on a GPU: what `enqueue` launches runs beside what comes next in the stream, until join().
  void beside(const std::function<void()>& enqueue);
  void join();
  /// What `enqueue` enqueues on the stream, as a graph. Only on a GPU.
  std::unique_ptr<support::Graph> capture(const std::function<void()>& enqueue) {
    return platform_->capture(stream_, enqueue);
  }

 private:
  support::Kind own_kind() const { return is_gpu() ? support::Kind::mapped : support::Kind::unmapped; }

  const std::unique_ptr<support::Platform> platform_;
  void* const stream_;
  void* beside_ = nullptr;   ///< the other stream, once there is one
  void* current_ = stream_;  ///< where kernels go
};

/// Kernels run on the calling thread, at once: no stream.
std::unique_ptr<Device> make_inline_host_device();

/// Collective over MPI_COMM_WORLD: the device of that name, with a stream; "auto": the one that libmpix uses. Throws
/// std::runtime_error.
std::unique_ptr<Device> make_device(const std::string& name);

/// libmpix reads MPIX_DEVICE in MPI_Init: set it to `name` before, unless it is set.
void tell_libmpix(const std::string& name);

/// Memory of a device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Device& device, long count)
      : device_(&device), data_(static_cast<T*>(device.allocate(static_cast<std::size_t>(count) * sizeof(T)))) {}
  ~DeviceArray() {
    if (data_ != nullptr) device_->release(data_);
  }
  DeviceArray(DeviceArray&& other) noexcept : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;

  T* data() const { return data_; }

 private:
  Device* device_;
  T* data_;
};

using DeviceBuffer = DeviceArray<double>;

}  // namespace bench
