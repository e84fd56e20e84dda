// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpix_device/memory.h"

/// The message of an epoch to a rank of another node, as kernels pack and unpack it (wire/relayed.h): an entry for each
/// put, and their data, in the same order. The entries land in the target's inbox; so do the data, right behind them,
/// where there is room; else in its landing memory, in chunks.
namespace mpix {

struct MessageEntry {
  std::uint64_t offset;  ///< in the window
  std::uint64_t bytes;
  std::uint64_t data;  ///< where they land: in the inbox, from its begin; in landing memory, the address that kernels
                       ///< of the target have. At the origin: the position among the data
};

/// How much the entries take: data begin at a multiple of a line.
MPIX_FN std::size_t entries_bytes(std::size_t entries) { return (entries * sizeof(MessageEntry) + 63) / 64 * 64; }

/// Where the data of one put begin is a multiple of this; the larger ones as kernels copy fastest.
inline std::size_t data_alignment(std::uint64_t bytes) { return bytes < 1024 ? 16 : 64; }

/// The data of a message are cut into chunks of this power of two, so that the first ones move while kernels pack the
/// others. Smaller ones cost more than they bring: 4 MB in 16 pieces took twice as long over TCP as in two.
constexpr std::uint32_t least_chunk_shift = 21, most_chunks = 64;
/// Of a message that is not cut, though its data land apart.
constexpr std::uint32_t one_chunk = 63;

/// What a target waits for, in one word: the epoch, and of what kind its message is.
struct Arrival {
  std::uint64_t word;

  static constexpr unsigned entries_bits = 12, shift_bits = 6, lines_bits = 14;
  static constexpr std::uint32_t most_entries = (1u << entries_bits) - 1;
  /// `chunk_shift` 0: the data are in the inbox. `bytes`: of these.
  MPIX_FN static Arrival of(std::uint64_t epoch, std::uint32_t chunk_shift, std::uint64_t entries,
                            std::uint64_t bytes) {
    const std::uint64_t lines = (bytes + 63) / 64;
    const bool told = chunk_shift == 0 && lines < (1u << lines_bits);
    return Arrival{epoch << 32 | (told ? lines : 0) << (entries_bits + shift_bits) |
                   static_cast<std::uint64_t>(chunk_shift) << entries_bits | entries};
  }
  /// The word is written in each epoch, so it is of this one or the one before, and the lower half of the number says
  /// which.
  MPIX_FN bool is_of(std::uint64_t epoch) const { return word >> 32 == (epoch & 0xffffffffu); }
  MPIX_FN std::uint32_t entries() const { return static_cast<std::uint32_t>(word) & most_entries; }
  MPIX_FN std::uint32_t chunk_shift() const {
    return static_cast<std::uint32_t>(word) >> entries_bits & ((1u << shift_bits) - 1);
  }
  /// Of data in the inbox, so many lines of 64 bytes at most; 0: none, or many.
  MPIX_FN std::uint32_t lines() const { return static_cast<std::uint32_t>(word) >> (entries_bits + shift_bits); }
};

MPIX_FN std::uint32_t chunks_in(std::uint64_t bytes, std::uint32_t chunk_shift) {
  if (chunk_shift == 0 || bytes == 0) return 1;
  return static_cast<std::uint32_t>((bytes - 1) >> chunk_shift) + 1;
}

/// The least that cuts so many bytes into most_chunks at most.
inline std::uint32_t chunk_shift_for(std::uint64_t bytes) {
  std::uint32_t shift = least_chunk_shift;
  while (chunks_in(bytes, shift) > most_chunks) ++shift;
  return shift;
}

}  // namespace mpix
