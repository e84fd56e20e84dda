// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace bench {

enum class Vendor { cuda, hip };

/// A kernel with its arguments. A stream refers to it and runs it later, so it must outlive that.
class Launchable {
 public:
  virtual ~Launchable() = default;
  virtual void run_on_host() const = 0;
  virtual void launch_on_gpu(Vendor vendor, void* stream) const = 0;
};

/// What was captured of a stream, to be enqueued again and again.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;
};

/// Where the data lives and kernels run, with one stream. What a GPU refuses throws std::runtime_error.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  ///< as MPIX_DEVICE has it
  virtual std::string describe() const = 0;
  virtual void* stream() = 0;  ///< for the calls of libmpix; null when the device has none

  virtual void* allocate(std::size_t bytes) = 0;  ///< throws std::bad_alloc
  virtual void release(void* memory) noexcept = 0;
  /// Memory of the CPU that the device copies to and from at full speed.
  virtual void* allocate_on_host(std::size_t bytes) = 0;
  virtual void release_on_host(void* memory) noexcept = 0;
  /// Make such memory of what somebody else has allocated. False: not possible, copies will be slower.
  virtual bool pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  // In stream order; done for certain after synchronize().
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void launch(const Launchable& kernel) = 0;
  virtual void synchronize() = 0;

  virtual bool is_gpu() const = 0;
  /// What `enqueue` enqueues on the stream, as a graph. Only on a GPU.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) = 0;
};

/// Kernels run on the calling thread, at once: no stream.
std::unique_ptr<Device> make_inline_host_device();
/// Kernels run on an MPIX_Host_stream.
std::unique_ptr<Device> make_host_stream_device();
/// Null: not built, or no such GPU. Of n GPUs, rank r of a node takes number r modulo n, and makes it the current one.
std::unique_ptr<Device> make_cuda_device(int local_rank);
std::unique_ptr<Device> make_hip_device(int local_rank);

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
