// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "net/network.h"

namespace mpix {

/// At an origin, for one target: pinned memory from which the network takes what is too large for a mailbox. Kernels
/// leave it there, and say in the slot where.
///
/// All plans use the same block, each from its begin: an epoch waits for its post, and so for the end of the epoch
/// before (offnode/relay_peers.h). Where a plan needs more there is a new block, for it and those after it; the old one
/// goes when the plans that know it have ended, and all that they have sent is over.
///
/// (To allocate pinned memory waits for no kernel, and to give it back neither: device/gpu/memory.h.)
class Outgoing {
 public:
  /// `sent`, `finished`: count the epochs of the target.
  Outgoing(Device& device, Network& network, const std::uint64_t& sent, const std::uint64_t& finished)
      : device_(device), network_(network), sent_(sent), finished_(finished) {}
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  /// Of the block for so many. Sizes are few, so that memory of one block serves as another: four to each power of two.
  static std::size_t block_bytes(std::size_t bytes);
  /// Memory for so many bytes of a plan, which calls leave() when it ends. Throws Error.
  char* enter(std::size_t bytes);
  void leave(const char* base);

  struct Source {
    const Registration* registration;
    std::size_t position;     ///< in its block,
    std::size_t block_bytes;  ///< which has so many
  };
  Source source(const char* data);

  /// The puts of an epoch lie one behind the other, so that one write carries all. Rounded, as kernels copy fastest so.
  static std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  struct Block {
    std::shared_ptr<char> memory;
    std::size_t bytes;
    std::shared_ptr<const Registration> registration;
    std::size_t plans;
    std::uint64_t sent;  ///< when the last plan ended
  };
  void drop_old();  // under mutex_

  Device& device_;
  Network& network_;
  const std::uint64_t& sent_;
  const std::uint64_t& finished_;
  std::mutex mutex_;         ///< guards what follows
  std::list<Block> blocks_;  ///< the newest in front
};

}  // namespace mpix
