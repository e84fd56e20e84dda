// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/host/stream.h"
#include "team/neighbourhood.h"

/// What a rank of the host device has: streams, and a window's memory.

/// A stream that is drained and destroyed at the end of the scope.
class ScopedStream {
 public:
  ScopedStream() : stream_(mpix::create_host_stream()) {}
  ~ScopedStream() { mpix::destroy_host_stream(stream_); }
  operator mpix::Stream() const { return stream_; }
  mpix::HostStream* operator->() const { return stream_; }

 private:
  mpix::HostStream* stream_;
};

/// Memory of a window: mappable by peers, or not.
class WindowMemory {
 public:
  WindowMemory(mpix::Device& device, std::size_t bytes, bool mappable) : device_(device), bytes_(bytes) {
    if (mappable)
      mapped_ = device.allocate(bytes).base;
    else
      own_.assign(bytes, 0);
  }
  ~WindowMemory() {
    if (mapped_) device_.release(mapped_);
  }
  unsigned char* data() { return mapped_ ? reinterpret_cast<unsigned char*>(mapped_) : own_.data(); }
  mpix::LocalMemory local(std::size_t unit = 1) { return {data(), bytes_, unit}; }

 private:
  mpix::Device& device_;
  std::size_t bytes_;
  char* mapped_ = nullptr;
  std::vector<unsigned char> own_;
};

/// Work for a stream that owns its arguments.
inline void then(mpix::HostStream* stream, std::function<void()> work) {
  stream->launch(
      [](void* p) {
        std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(p));
        (*mine)();
      },
      new std::function<void()>(std::move(work)));
}
