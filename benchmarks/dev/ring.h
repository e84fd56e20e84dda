// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "team.h"

/// Ranks in a ring, each of which exchanges a packet with both neighbours.
namespace ring {

enum class Side { left, right };
MPIX_FN Side opposite(Side side) { return side == Side::left ? Side::right : Side::left; }

/// A rank's packets: those that it receives, from both sides, and those that it sends. A neighbour may be an iteration
/// ahead, not two: it receives in two places in turns.
struct Packets {
  char* begin;  ///< of the first rank here
  MPIX_Dev_win window;
  std::size_t bytes;  ///< of a packet

  static constexpr std::size_t count = 6;
  MPIX_FN std::size_t received(Side from, int iteration) const {
    return (static_cast<std::size_t>(iteration % 2) * 2 + (from == Side::left ? 0 : 1)) * bytes;
  }
  MPIX_FN std::size_t sent(Side to) const { return (to == Side::left ? 4 : 5) * bytes; }
  MPIX_FN std::uint64_t* words(int rank_here, std::size_t at) const {
    return reinterpret_cast<std::uint64_t*>(begin + static_cast<std::size_t>(rank_here) * count * bytes + at);
  }
  MPIX_FN std::size_t word_count() const { return bytes / sizeof(std::uint64_t); }
};

/// What a packet has in it that is checked.
MPIX_FN std::uint64_t word_of(int source, int iteration, Side to, std::size_t index) {
  const std::uint64_t rank_and_side = static_cast<std::uint64_t>(source) * 2 + (to == Side::left ? 0 : 1);
  return (rank_and_side << 32 | static_cast<std::uint64_t>(iteration)) + index * 0x9e3779b97f4a7c15u;
}
MPIX_DEV_FN void fill(const Packets& packets, int me_here, int me, int iteration, Side to) {
  std::uint64_t* const words = packets.words(me_here, packets.sent(to));
  const team::Team team = team::here();
  for (std::size_t i = static_cast<std::size_t>(team.index); i < packets.word_count(); i += team.size)
    words[i] = word_of(me, iteration, to, i);
}
MPIX_DEV_FN std::uint64_t count_right(const Packets& packets, int me_here, int source, int iteration, Side from) {
  const std::uint64_t* const words = packets.words(me_here, packets.received(from, iteration));
  const team::Team team = team::here();
  std::uint64_t right = 0;
  for (std::size_t i = static_cast<std::size_t>(team.index); i < packets.word_count(); i += team.size)
    right += words[i] == word_of(source, iteration, opposite(from), i);
  return right;
}

/// A packet to both neighbours, and theirs. `right`: of each thread here, how many words have come as they were sent;
/// null: nobody looks. Out of line, as the computation is.
MPIX_DEV_CALL bool exchange(MPIX_Dev_ctx& c, Packets packets, int iteration, std::uint64_t* right) {
  const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), ranks = MPIX_Dev_size(&c, MPIX_DEV_WORLD);
  const int me_here = MPIX_Dev_rank(&c, MPIX_DEV_DEVICE), tag = iteration % 2;
  const int left = me > 0 ? me - 1 : ranks - 1, behind = me + 1 < ranks ? me + 1 : 0;
  const auto neighbour = [&](Side side) { return side == Side::left ? left : behind; };
  for (const Side to : {Side::left, Side::right}) {
    if (right) fill(packets, me_here, me, iteration, to);
    (void)MPIX_Dev_put_notify(&c, packets.window, neighbour(to), packets.received(opposite(to), iteration),
                              packets.bytes, packets.words(me_here, packets.sent(to)), tag);
  }
  if (MPIX_Dev_wait(&c, packets.window, MPIX_DEV_ANY_SOURCE, tag, 2) != MPI_SUCCESS) return false;
  if (right)
    for (const Side from : {Side::left, Side::right})
      right[me_here * team::here().size + team::here().index] +=
          count_right(packets, me_here, neighbour(from), iteration, from);
  return true;
}

}  // namespace ring
