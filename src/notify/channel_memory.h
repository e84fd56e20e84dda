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

/// The words of a channel, at the host and on the device. Freed memory is kept, and used again for channels of about
/// the same size: a kernel that still has the old channel finds no generation of its own, and neither faults nor waits.
/// The channel's generation lies at one place in all channels; where a lane had its, another channel may have counts,
/// so no generation is a number that anything counts up to.
class ChannelMemory {
 public:
  ChannelMemory(const ChannelOptions& options, Device& device);
  ~ChannelMemory();
  ChannelMemory(const ChannelMemory&) = delete;
  ChannelMemory& operator=(const ChannelMemory&) = delete;

  const MPIX_Dev_channel& param() const { return param_; }
  /// What the host knows of the flags that kernels wait for: these themselves, unless they lie in memory of the device.
  std::uint64_t* flags_set() const { return flags_set_; }

  /// Before the device ends: what is kept.
  static void forget_all() noexcept;

 private:
  /// Where a channel lies, or lay.
  template <class Memory>
  struct Room {
    Device* of = nullptr;
    std::size_t bytes = 0;
    Memory base{};
  };
  struct Kept;
  static Kept& kept();

  Device& device_;
  Room<std::shared_ptr<char>> host_;
  Room<char*> there_;
  MPIX_Dev_channel param_{};
  std::uint64_t* flags_set_ = nullptr;
};

}  // namespace mpix
