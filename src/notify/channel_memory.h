// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "mpix_device/notify.h"

namespace mpix {

struct ChannelOptions;

/// The words of a channel, at the host and on the device. Freed memory is kept, and used again for channels of the same
/// shape: a kernel that still has the old channel finds another generation, and neither faults nor waits.
class ChannelMemory {
 public:
  ChannelMemory(const ChannelOptions& options, Device& device);
  ~ChannelMemory();
  ChannelMemory(const ChannelMemory&) = delete;
  ChannelMemory& operator=(const ChannelMemory&) = delete;

  const MPIX_Dev_channel& param() const { return param_; }

  /// Before the device ends: what is kept.
  static void forget_all() noexcept;

 private:
  struct Room {
    std::shared_ptr<char> host;
    std::size_t host_bytes = 0;
    char* device = nullptr;
    std::size_t device_bytes = 0;
    std::uint64_t generation = 0;
  };
  struct Kept;
  static Kept& kept();

  Device& device_;
  Room room_;
  MPIX_Dev_channel param_{};
};

}  // namespace mpix
