// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "mpix_device/memory.h"

/// Which of a few ways the next call of a class takes, by how long the calls before took: a rule on whole numbers, so
/// that all ranks that see the same times choose the same.
namespace mpix {

/// What is known of a class of calls. All zero at first.
///
/// | state     | the next way                                                    | ends                                 |
/// |-----------|-----------------------------------------------------------------|--------------------------------------|
/// | looking   | each in turn, until its first time is known                     | when all have one                    |
/// | comparing | the one tried least, of those at most twice as slow as the best | when each was tried `tries` times    |
/// | settled   | the fastest                                                     | after `samples_between`: looking     |
///
/// A call that is measured costs some tenths of a microsecond more. So all are while the ways are not settled, and then
/// one in `rest` + 1, and each for as long as they take longer than they did.
///
/// A way's time is the least of its samples: what disturbs a call makes it longer. While a way is taken its time is
/// that of its last `window` samples, so that it is noticed when it becomes slower: then another one is the fastest,
/// and taken, and looked at in turn.
struct alignas(32) WayTimes {
  static constexpr std::uint32_t most = 4;
  static constexpr std::uint32_t tries = 6, window = 8, samples_between = 2048;
  static constexpr std::uint8_t rest = 16;
  /// Times a way has to be faster than the one that is taken: 1 / margin of it. Less is noise.
  static constexpr std::uint32_t margin = 32;

  std::uint32_t least[most];  ///< 0: none
  std::uint32_t newest;       ///< the least of this window
  std::uint16_t samples;      ///< since it has settled
  std::uint8_t pause;         ///< so many calls are not measured
  std::uint8_t next_pause;    ///< behind one that is
  std::uint8_t tried[most];   ///< while comparing
  std::uint8_t way;           ///< the next call's
  std::uint8_t is_settled;
  std::uint8_t in_window;
  std::uint8_t sampled;  ///< a bit for each way whose time is known since looking began

  MPIX_FN bool measures() const { return !is_settled || pause == 0; }
  /// `pause` behind a call that begins in this state.
  MPIX_FN std::uint8_t pause_after() const { return measures() ? next_pause : static_cast<std::uint8_t>(pause - 1); }

  /// A call of one of `count` ways has taken `time`, on the slowest rank. Calls that were under way when the last
  /// choice was made may come in with the way before.
  MPIX_FN void add(std::uint32_t taken, std::uint32_t time, std::uint32_t count) {
    if (taken >= count) return;
    if (time == 0) time = 1;
    if (is_settled) {
      add_settled(taken, time, count);
    } else {
      const bool has_one = (sampled >> taken & 1) != 0;
      if (!has_one || time < least[taken]) least[taken] = time;
      sampled = static_cast<std::uint8_t>(sampled | 1u << taken);
      explore(count);
    }
  }

 private:
  MPIX_FN std::uint32_t fastest(std::uint32_t count) const {
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < count; ++i)
      if (least[i] < least[best]) best = i;
    return best;
  }

  MPIX_FN void explore(std::uint32_t count) {
    std::uint32_t next = 0;
    while (next < count && (sampled >> next & 1) != 0) ++next;
    if (next == count) {
      const std::uint32_t best = fastest(count);
      for (std::uint32_t i = 0; i < count; ++i)
        if (least[i] / 2 <= least[best] && tried[i] < tries && (next == count || tried[i] < tried[next])) next = i;
      if (next < count) ++tried[next];
    }
    if (next < count) {
      way = static_cast<std::uint8_t>(next);
      return;
    }
    way = static_cast<std::uint8_t>(fastest(count));
    is_settled = 1;
    next_pause = rest;
    in_window = 0;
    samples = 0;
  }

  MPIX_FN void add_settled(std::uint32_t taken, std::uint32_t time, std::uint32_t count) {
    if (++samples >= samples_between) {
      for (std::uint32_t i = 0; i < count; ++i) tried[i] = 0;
      is_settled = sampled = 0;
      return explore(count);
    }
    if (taken != way) {
      if (time < least[taken]) least[taken] = time;
      return;
    }
    next_pause = time > least[way] + least[way] / 8 ? 0 : rest;
    if (in_window == 0 || time < newest) newest = time;
    if (++in_window < window) return;
    in_window = 0;
    least[way] = newest;
    const std::uint32_t best = fastest(count);
    if (least[best] < newest - newest / margin) {
      way = static_cast<std::uint8_t>(best);
      next_pause = 0;
    }
  }
};
static_assert(sizeof(WayTimes) == 32, "one sector of a GPU's cache");

/// What the calls of a communicator that choose leave for the next one; see collective_chosen.h.
struct alignas(32) LastCalls {
  struct One {
    std::uint32_t time;
    std::uint16_t class_index;
    std::uint8_t way, count;
  };
  std::uint32_t number;   ///< of the last one that was measured
  std::uint32_t direct;   ///< how many of all went direct
  One last, before_last;  ///< that were measured
};
static_assert(sizeof(LastCalls) == 32, "loaded as two pairs");

/// The ways of a call that chooses where it runs; those of its class all have the same.
struct WayCandidates {
  std::uint32_t count;  ///< 0: it does not choose
  std::uint32_t class_index;
  std::uint32_t launched;  ///< parts
  struct Way {
    std::uint32_t direct;
    std::uint32_t parts;
    std::uint64_t chunk_words;
  } of[WayTimes::most];
};

}  // namespace mpix
