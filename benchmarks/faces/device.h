// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace faces {

/// A kernel with its arguments. A stream refers to it and runs it later, so it must outlive that.
class Launchable {
 public:
  virtual ~Launchable() = default;
  virtual void run_on_host() const = 0;
  // A GPU device adds: virtual void launch_on_gpu(void* stream) const = 0;
};

template <class Body>
class Kernel final : public Launchable {
 public:
  explicit Kernel(const Body& body) : body_(body) {}

  void run_on_host() const override {
    const Body body = body_;  // a local copy: stores through its pointers cannot change it
    const int rows = body.rows();
    for (int r = 0; r < rows; ++r) {
      const auto row = body.row(r);
      for (int p = 0; p < row.length; ++p) body.point(row, p);
    }
  }

 private:
  Body body_;
};

/// Where the field lives and kernels run.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* describe() const = 0;
  virtual void* allocate(std::size_t bytes) = 0;  ///< throws std::bad_alloc
  virtual void release(void* memory) noexcept = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void launch(const Launchable& kernel) = 0;
  virtual void synchronize() = 0;
  virtual void* stream() = 0;  ///< for the calls of libmpix; null when the device has none
};

/// Kernels run on the calling thread, at once: no stream.
std::unique_ptr<Device> make_inline_host_device();
/// Kernels run on an MPIX_Host_stream.
std::unique_ptr<Device> make_host_stream_device();

/// Doubles on a device.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, long count)
      : device_(&device), data_(static_cast<double*>(device.allocate(bytes(count)))) {}
  ~DeviceBuffer() {
    if (data_ != nullptr) device_->release(data_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  double* data() const { return data_; }

 private:
  static std::size_t bytes(long count) { return static_cast<std::size_t>(count) * sizeof(double); }

  Device* device_;
  double* data_;
};

}  // namespace faces
