// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_direct.h"
#include "wire/way_choice.h"

/// Calls whose way is chosen where they run, by how long those before took (MPIX_COLL_SELECT=dynamic): nobody asks the
/// CPU, so that the calls of a graph choose too, and all ranks choose the same, as they have the same times.
///
/// Some of them are measured, the same on all ranks. Those have numbers of their own: k, in what follows.
///
/// | word            | lies in | written by                                 | read by                        | order |
/// |-----------------|---------|--------------------------------------------|--------------------------------|-------|
/// | times[k mod 4][o] | t     | o's part 0, at the begin of k: how long o's k - 1 took, and the way of k | t's part 0, at the begin of k + 1 | none: a line |
/// | next way of a class | o   | o's part 0, in a measured call, with the call's number | all parts of o, at their begin | 8 bytes; see below |
/// | what is known of a class; the last calls | o | o's part 0         | o's part 0                     | stream order |
///
/// So at the begin of k + 1 each rank has the times of k - 1 of all ranks, which have all begun k by then, takes the
/// longest, and says which way the next call of that class goes. Four places are enough, as for calls[]: nobody is more
/// than a call ahead of another.
///
/// A part of a call may begin when part 0 has chosen for the next one. So the word has the number of the call that
/// wrote it, and the way before: a part that finds its own call's number takes that.
///
/// A launch has as many parts as the way that has most. The others leave, and each writes the state of its part itself.
namespace mpix {

/// The next way of a class, as a word.
struct NextWay {
  std::uint32_t call;  ///< that has written it
  std::uint8_t before, now;

  MPIX_FN std::uint64_t packed() const { return std::uint64_t{call} << 32 | std::uint32_t{before} << 8 | now; }
  static MPIX_FN NextWay of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint8_t>(word >> 8),
            static_cast<std::uint8_t>(word)};
  }
  MPIX_FN std::uint32_t in(std::uint32_t the_call) const { return the_call == call ? before : now; }
};

MPIX_FN LastCalls* last_calls(const Collective& c) {
  return reinterpret_cast<LastCalls*>(c.own() + c.places.choices());
}
MPIX_FN WayTimes* way_times(const Collective& c, std::uint32_t index) {
  return reinterpret_cast<WayTimes*>(last_calls(c) + 1) + index;
}
MPIX_FN std::uint64_t* next_way(const Collective& c, std::uint32_t index) {
  return reinterpret_cast<std::uint64_t*>(way_times(c, call_classes)) + index;
}
static_assert(sizeof(LastCalls) + call_classes * (sizeof(WayTimes) + 8) <= CollectivePlaces::choice_bytes, "its place");
MPIX_FN Line* time_line(const Collective& c, std::uint32_t at, std::uint32_t of, std::uint32_t number) {
  return reinterpret_cast<Line*>(c.memory(at) + c.places.times()) + (number % 4) * c.ranks() + of;
}

/// `has_lines`: some of the ways may be by lines.
template <class Crew, bool has_lines = true>
class ChosenCall {
 public:
  /// `c`: not of another crew; which way it goes is written into it.
  MPIX_STEP ChosenCall(const Crew& crew, Collective& c, const WayCandidates& ways, PlaceTable& table)
      : crew_(crew), c_(c), ways_(ways), table_(table) {}

  /// False: released, or the ranks call different things.
  MPIX_STEP bool run() {
    const CollectiveState state = load_state(c_.states() + crew_.part);
    const NextWay next = NextWay::of(load_relaxed(next_way(c_, ways_.class_index)));
    // Part 0 alone writes these.
    const WayTimes times = crew_.part == 0 ? load_own(way_times(c_, ways_.class_index)) : WayTimes{};
    const LastCalls last = crew_.part == 0 ? load_own(last_calls(c_)) : LastCalls{};
    const std::uint32_t call = next_number(state.call), way = next.in(call) % WayTimes::most;
    const bool is_measured = crew_.part == 0 && times.measures();
    const std::uint64_t begin = is_measured ? crew_.now() : 0;
    const Workers workers = crew_.workers();
    if (workers.index == 0) {
      c_.direct = ways_.of[way].direct != 0;
      c_.parts = ways_.of[way].parts;
      c_.chunk_words = ways_.of[way].chunk_words;
      c_.launched = ways_.launched;
    }
    if (!crew_.agree(true)) return false;
    if (crew_.part != 0) return run_way();
    const std::uint32_t number = is_measured ? next_number(last.number) : last.number;
    bool good = true;
    if (is_measured) {
      tell_times(last, number, way);
      // By one that has not told the first ranks: they wait for that.
      if (workers.index == workers.size - 1 && last.number != 0) good = choose(last, call);
    }
    good = run_way() && good;
    if (workers.index == 0) {
      way_times(c_, ways_.class_index)->pause = times.pause_after();
      leave(last, number, way, is_measured ? crew_.now() - begin : 0);
    }
    return good;
  }

 private:
  MPIX_STEP bool run_way() const {
    if constexpr (has_lines)
      if (!c_.direct) return run_by_lines(crew_, c_);
    return DirectCall<Crew>(crew_, c_, table_).run();
  }

  template <class T>
  static MPIX_STEP T load_own(const T* from) {
    static_assert(sizeof(T) == 32, "two pairs");
    std::uint64_t words[4];
    load_pair(reinterpret_cast<const char*>(from), words);
    load_pair(reinterpret_cast<const char*>(from) + 16, words + 2);
    T loaded;
    memcpy(&loaded, words, sizeof loaded);
    return loaded;
  }

  MPIX_STEP void tell_times(const LastCalls& last, std::uint32_t number, std::uint32_t way) const {
    const Workers workers = crew_.workers();
    for (std::uint32_t rank = workers.index; rank < c_.ranks(); rank += workers.size)
      if (rank != c_.me)
        write_line(time_line(c_, rank, c_.me, number), std::uint64_t{way} << 32 | last.last.time, number);
  }

  /// The times of the call before the last one, of all ranks; the others have told them in the last one.
  MPIX_STEP bool choose(const LastCalls& last, std::uint32_t call) const {
    std::uint32_t longest = last.before_last.time;
    for (std::uint32_t from = 0; from < c_.ranks(); from += Crew::batch) {
      std::uint64_t words[Crew::batch];
      bool there[Crew::batch];
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < Crew::batch; ++i) {
        const std::uint32_t rank = from + i;
        words[i] = 0;
        there[i] = rank >= c_.ranks() || rank == c_.me ||
                   line_arrived(time_line(c_, c_.me, rank, last.number), last.number, &words[i]);
      }
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < Crew::batch; ++i) {
        const std::uint32_t rank = from + i;
        if (rank >= c_.ranks() || rank == c_.me) continue;
        if (!there[i] && !crew_.await(rank, time_line(c_, c_.me, rank, last.number), last.number, &words[i]))
          return false;
        if (words[i] >> 32 != last.last.way) {  // cannot be
          crew_.report(rank, c_.word, c_.word);
          return false;
        }
        const auto time = static_cast<std::uint32_t>(words[i]);
        longest = time > longest ? time : longest;
      }
    }
    if (last.before_last.count == 0) return true;
    const std::uint32_t index = last.before_last.class_index;
    WayTimes times = *way_times(c_, index);
    const NextWay next{call, NextWay::of(*next_way(c_, index)).now, 0};
    times.add(last.before_last.way, longest, last.before_last.count);
    *way_times(c_, index) = times;
    store_after_loads(next_way(c_, index), NextWay{call, next.before, times.way}.packed());
    return true;
  }

  MPIX_STEP void leave(LastCalls last, std::uint32_t number, std::uint32_t way, std::uint64_t time) const {
    last.direct += c_.direct ? 1 : 0;
    if (number != last.number) {
      last.number = number;
      last.before_last = last.last;
      last.last = {static_cast<std::uint32_t>(time < UINT32_MAX ? time : UINT32_MAX),
                   static_cast<std::uint16_t>(ways_.class_index), static_cast<std::uint8_t>(way),
                   static_cast<std::uint8_t>(ways_.count)};
    }
    *last_calls(c_) = last;
  }

  const Crew& crew_;
  Collective& c_;
  const WayCandidates& ways_;
  PlaceTable& table_;
};

}  // namespace mpix
