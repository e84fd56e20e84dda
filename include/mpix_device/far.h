// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "channel.h"
#include "layout.h"

/// Ranks of other nodes. Kernels hand what they put there to the service of their process (src/domain/courier.h), by a
/// channel, and it hands them what comes: all in memory of the host.
///
/// | word           | written by                        | read by          | order |
/// |----------------|-----------------------------------|------------------|-------|
/// | tasks_given, data_given | ranks here: fetch and add, device | the same | none: they give out tasks, and room for data |
/// | data           | the rank that they were given to; the service, for a get | the service; the rank | the task that tells of them; `replies` |
/// | a task         | the rank that it was given to     | the service, one after another | channel.h |
/// | tasks_taken    | the service: tasks before this one have been taken | ranks | release; a rank only stores after its branch |
/// | data_freed     | likewise, of data                 | ranks            | likewise |
/// | lines          | the service, for the rank         | the rank, by flag | the data are in the window before; the rank fences |
/// | lines_read     | the rank                          | the service      | the rank's loads come first |
/// | replies        | the service: gets of the rank that are over | the rank | release / acquire |
/// | flushed        | the service: the rank's last flush that is over | the rank | release / acquire |
/// | go             | the service: all processes of other nodes have come to this barrier | the last rank here to arrive | release / acquire |
///
/// Tasks are taken in order, and the service sends what they say to each process in order; the service there puts the
/// data into windows, and only then hands out the notification, or answers a flush: so the guarantees are those of a
/// node. A rank asks for a task when its data are there. One that waits for the task's place keeps those behind it
/// back, and waits for the service alone. Whoever waits reads its lanes meanwhile.
namespace mpix {
namespace dev {

constexpr std::uint32_t far_tasks = 1024;
constexpr std::uint64_t far_data_bytes = 4u << 20;
/// More goes in pieces: each is copied whole, at both ends.
constexpr std::uint64_t far_piece_bytes = 256u << 10;
/// Of the lane that each rank has for all that comes from other nodes.
constexpr std::uint32_t far_lane_shift = 9, far_lane_lines = 1u << far_lane_shift;

struct alignas(64) FarWords {
  std::uint64_t tasks_taken, data_freed;
  std::uint64_t go;
  std::uint64_t unused[5];
};

struct alignas(64) FarRank {
  std::uint64_t lines_read;
  std::uint64_t replies, flushed;
  std::uint64_t unused[5];
  Line lines[far_lane_lines];
};

/// What a task says: Task::word.
enum FarWord : std::uint32_t {
  far_what,          ///< tag, source, window, as in an entry
  far_route,         ///< target, and flags above; of a barrier its number; of a flush likewise
  far_displacement,  ///< of a window that is opened, its base here
  far_bytes,         ///< of a window, present
  far_place,         ///< where the data are; of a window, its window_call
  far_before,        ///< bytes that went in pieces before
};
constexpr std::uint64_t far_notifies = std::uint64_t{1} << 32;  ///< the target is told

MPIX_FN std::uint64_t far_round(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace dev
}  // namespace mpix
