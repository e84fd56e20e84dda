// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "net/network.h"

namespace mpix {

/// At an origin, for one window: pinned memory from which the network takes what is too large for a mailbox. Kernels
/// leave it there. A plan has a block for each target, and gives it back when it ends.
///
/// A slot says where: what kernels write as a put's offset has the place in this memory in its upper bits, which the
/// relay takes off before the target sees it. So the relay knows by the slot alone.
///
/// As much as epochs need, in pieces that grow: nothing before the first that goes this way. (To allocate pinned memory
/// waits for no kernel: device/gpu/memory.h.)
class Outgoing {
 public:
  static constexpr std::size_t unit = 256;
  static constexpr unsigned offset_bits = 38;  ///< of offsets in a window
  static constexpr std::uint64_t most_offset = (std::uint64_t{1} << offset_bits) - 1;
  static constexpr std::uint64_t most_units = std::uint64_t{1} << (64 - offset_bits);

  /// When a block may be used again: `finished` and `sent` count the epochs of its target.
  struct Epochs {
    const std::uint64_t* sent;
    const std::uint64_t* finished;
  };

  /// `least`: bytes of the first piece, where no epoch needs more.
  Outgoing(Device& device, Network& network, std::size_t least = std::size_t{1} << 20)
      : device_(device), network_(network), least_(rounded_up(least) / unit) {}
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  struct Block {
    char* base;
    std::uint64_t place;  ///< in units
  };
  /// Throws Error.
  Block take(std::size_t bytes);
  /// Its plan has ended: all that it will ever send has been handed to the relay, which may not be done with it.
  void give_back(const Block& block, std::size_t bytes, const Epochs& epochs);

  static std::size_t rounded_up(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }
  static std::uint64_t marked(std::uint64_t offset, std::uint64_t place) { return offset | place << offset_bits; }
  static std::uint64_t offset_of(std::uint64_t marked) { return marked & most_offset; }
  static std::uint64_t place_of(std::uint64_t marked) { return marked >> offset_bits; }

  struct Source {
    const char* base;
    const Registration* registration;
  };
  Source source(std::uint64_t place);

 private:
  struct Chunk {
    std::uint64_t first;  ///< place
    std::uint64_t units;
    std::shared_ptr<char> memory;
    std::shared_ptr<const Registration> registration;
  };
  struct Leaving {
    std::uint64_t first, units, sent;
    const std::uint64_t* finished;
  };

  void add_chunk(std::uint64_t units);                      // under mutex_
  void put_back(std::uint64_t first, std::uint64_t units);  // likewise
  void take_back();                                         // likewise
  const Chunk& chunk_of(std::uint64_t place) const;         // likewise

  Device& device_;
  Network& network_;
  const std::uint64_t least_;  ///< units
  std::mutex mutex_;           ///< guards what follows
  std::vector<Chunk> chunks_;
  std::map<std::uint64_t, std::uint64_t> free_;  ///< first → units; pieces of one chunk that touch are one
  std::vector<Leaving> leaving_;
  std::uint64_t end_ = 0;
};

}  // namespace mpix
