// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/unmapping.h"
#include "mpix_device/halo_words.h"
#include "mpix_device/notify.h"
#include "notify/halo_plan.h"

namespace mpix {

/// A cargo by memory, as its other end has it.
struct HaloEnd {
  char* segment = nullptr;                        ///< mapped here; null: the cargo goes by MPI
  std::uint64_t sends = 0;                        ///< number there of the cargo that comes from there
  std::uint64_t takes = 0;                        ///< of that which receives what goes there
  std::array<std::uint64_t, 2> at{};              ///< its buffers there, in the segment
  bool sends_lines = false, takes_lines = false;  ///< from here; here
};

/// Where other ends of a halo's messages write to: words by cargo, and buffers for what comes by memory. And theirs, as
/// mapped here.
///
/// | in the segment | |
/// |----------------|-|
/// | ChannelHost    | on hosts its bell: of blocks that wait for other ends |
/// | HaloEndWords   | by cargo |
/// | buffers        | two of each cargo by memory |
class HaloSegment {
 public:
  /// By cargo. Throws where there is no memory.
  HaloSegment(Device& device, const std::vector<HaloCargo>& cargo, const std::vector<bool>& by_memory,
              const std::vector<bool>& may_take_lines);
  /// Nobody writes there any more.
  ~HaloSegment();
  HaloSegment(const HaloSegment&) = delete;
  HaloSegment& operator=(const HaloSegment&) = delete;

  ExportedMemory exported() const { return device_.export_memory(memory_.base); }
  char* base() const { return memory_.base; }
  /// In the segment; of what the cargo receives.
  const std::array<std::uint64_t, 2>& buffers_of(std::size_t cargo) const { return buffers_[cargo]; }
  /// Of another process. Throws where it cannot be.
  char* map(const ExportedMemory& exported);
  /// Kernels here, or in other processes, may write still: all stays as it is.
  void abandon() { is_abandoned_ = true; }

  static dev::ChannelHost* bell_of(char* segment) { return reinterpret_cast<dev::ChannelHost*>(segment); }
  static HaloEndWords* words_of(char* segment, std::uint64_t cargo) {
    return reinterpret_cast<HaloEndWords*>(segment + sizeof(dev::ChannelHost)) + cargo;
  }

 private:
  Device& device_;
  const UnmapsLater unmaps_later_;  ///< outlives what is mapped
  Allocation memory_{};
  std::vector<std::array<std::uint64_t, 2>> buffers_;
  std::vector<char*> mapped_;
  bool is_abandoned_ = false;
};

}  // namespace mpix
