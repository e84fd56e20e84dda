// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "base/error.h"
#include "base/thread.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

[[noreturn]] inline void fail_gpu(gpuError_t error, const char* expression) {
  (void)gpuGetLastError();  // else the next call of anybody would report it again
  throw Error(Fault::other, std::string(expression) + ": " + gpuGetErrorName(error) + ", " + gpuGetErrorString(error));
}

#define MPIX_CHECK_GPU(expression)                                   \
  do {                                                               \
    const gpuError_t error_ = (expression);                          \
    if (error_ != gpuSuccess) ::mpix::fail_gpu(error_, #expression); \
  } while (0)

/// Makes `device` the current one for a scope. On a thread of the library it stays: to make another one current, which
/// that thread has never used, begins a context there, of hundreds of megabytes.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    MPIX_CHECK_GPU(gpuGetDevice(&before_));
    if (before_ == device) return;
    MPIX_CHECK_GPU(gpuSetDevice(device));
    changed_ = true;
  }
  ~DeviceScope() {
    if (changed_ && !is_own_thread()) (void)gpuSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// On the current device: its own hardware queue, if it can be, not behind a stream that waits.
inline gpuStream_t new_foremost_stream() {
  int least = 0, most = 0;
  gpuStream_t stream = nullptr;
  MPIX_CHECK_GPU(gpuDeviceGetStreamPriorityRange(&least, &most));
  MPIX_CHECK_GPU(gpuStreamCreateWithPriority(&stream, gpuStreamNonBlocking, most));
  return stream;
}

/// Lets this thread allocate and copy while some stream captures: none of it belongs into the capture.
class OutsideCapture {
 public:
  OutsideCapture() { (void)gpuThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { (void)gpuThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  gpuStreamCaptureMode mode_ = gpuStreamCaptureModeRelaxed;
};

/// Both, in this order: the first call of a thread, whichever it is, begins a context on the device that is current.
class OwnCalls {
 public:
  explicit OwnCalls(int device) : scope_(device) {}

 private:
  const DeviceScope scope_;
  const OutsideCapture outside_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
