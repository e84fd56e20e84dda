// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"

/// The steps of a call by packs, where links carry what eight neighbouring threads of a GPU store at once, 128 bytes,
/// as one: NVLink does, and NCCL relies on it, too (LL128). 15 words of 16 are data, where lines have one of two. A
/// pack is seen whole, or not at all, and so says itself that it is there.
///
/// Steps by packs have numbers of their own, of 64 bits, which never come again. In a step, the packs of a call are
/// dealt out in turns: pack i of a turn belongs to group i mod groups of part i / groups. A group writes what the same
/// group of the other ranks reads, and works on by itself: nothing but a step's packs brings groups together.
///
/// | a rank knows                                  | by                                                      |
/// |-----------------------------------------------|---------------------------------------------------------|
/// | t's group has ended step n - 1                | t's pack of step n for it, which is sent behind that    |
/// | all of t has ended the steps of call K - 1    | a pack of call K of any group of t: a kernel starts when the one in front has ended |
///
/// **Two places are enough** (tests/model/packs.pml). Step n goes where n - 2 was. Within a call: before it sends n a
/// group has a pack of n - 1 of t's; so each group sends one in each step, without data if need be, where a call has
/// several. In the first step of call K: t has begun K - 1 (collective.h). If n - 2 is of K - 1, so is n - 1, of which
/// each group of t has sent a pack: it has ended n - 2. If n - 2 is older, that call has ended. In the second step of K
/// the group has a pack of K: K - 1 has ended. Rooted calls have one step: nobody tells the root how far the others
/// are.
///
/// Those who do the steps are a crew, as by lines, which has, too:
///
/// | of a crew        | a thread by itself (tests) | a block of a GPU                                       |
/// |------------------|----------------------------|--------------------------------------------------------|
/// | lanes            | 1                          | 8: workers that hold a pack together                   |
/// | movers           | itself                     | workers that move data                                 |
/// | askers           | itself                     | workers that ask what others have called               |
/// | store_pack, load_pack | its words              | a worker's share of them, the last one's with the number |
/// | load_any, store_any | load_word, store_word      | the same, out of line: their code is long              |
/// | converge         | nothing                    | the threads of a warp go on together                   |
/// | together         | its own word               | all of a warp say yes                                  |
/// | judge, judged_good | its own word             | whether all askers say yes; and waits for that         |
/// | still_waits      | not released               | not released, and tells the host                       |
namespace mpix {

/// What a thread has of a turn's packs.
template <std::uint32_t each>
struct TurnOfPacks {
  std::uint32_t at[each];  ///< which pack of the call
  bool has[each];
};

/// `each`: turns at once; pack_turns is a multiple of it. `aligned`: whole words, at addresses that are multiples of 8.
template <std::uint32_t most, std::uint32_t each, bool combines, bool aligned, class Crew>
class PackCall {
  static constexpr std::uint32_t lanes = Crew::lanes, own = 16 / lanes;
  using Words = std::uint64_t[each * own];

 public:
  MPIX_STEP PackCall(const Crew& crew, const Collective& c)
      : crew_(crew),
        c_(c),
        movers_(crew.movers()),
        lane_(movers_.index % lanes),
        group_(crew.part * (movers_.size / lanes) + movers_.index / lanes),
        of_turn_(c.parts * (movers_.size / lanes)),
        of_step_(c.pack_turns * of_turn_),
        words_(static_cast<std::uint32_t>((c.bytes + 7) / 8)),
        packs_((words_ + Pack::words - 1) / Pack::words) {}

  /// False: released, or the ranks call different things.
  MPIX_STEP bool run() {
    CollectiveState state = load_state(c_.states() + crew_.part);
    number_ = load_relaxed(c_.packed_steps() + crew_.part) + 1;
    // Together with what is known of the calls before.
    TurnOfPacks<each> mine = turn_of(0);
    Words sent[most];
    load(mine, sent);
    if (!await_call_before(crew_, c_, state)) return false;
    state.call = next_number(state.call);
    const Workers askers = crew_.askers();
    for (std::uint32_t rank = askers.index; crew_.part == 0 && rank < c_.ranks(); rank += askers.size)
      if (rank != c_.me) write_line(c_.call_line(rank, c_.me, state.call), c_.word, state.call);
    bool good = true;
    for (std::uint32_t begin = 0;;) {
      send(mine, sent);
      if (begin == 0 && askers.index < askers.size) {
        for (std::uint32_t rank = askers.index; good && rank < c_.ranks(); rank += askers.size)
          if (c_.hears(rank)) good = calls_the_same(crew_, c_, c_.word, state.call, rank);
        crew_.judge(good);
      }
      if (movers_.index >= movers_.size) break;
      Words all[most];
      const bool differ = c_.send_stride != 0;
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank) {
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < each * own; ++w) all[rank][w] = differ ? sent[rank][w] : sent[0][w];
      }
      // Nobody writes a result before all have been asked what they call.
      if (!receive(mine, all, state.call) || (begin == 0 && !crew_.judged_good())) return false;
      if (c_.gets_result()) store(mine, all);
      begin += each * of_turn_;
      if (begin >= packs_) break;
      if (begin - first_ == of_step_) {
        ++number_;
        first_ = begin;
      }
      mine = turn_of(begin);
      load(mine, sent);
    }
    if (good) leave(state);
    return good;
  }

 private:
  /// From pack `begin` of the call on.
  MPIX_STEP TurnOfPacks<each> turn_of(std::uint32_t begin) const {
    const bool one_at_least = begin == first_ && packs_ > of_step_;
    TurnOfPacks<each> mine;
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < each; ++i) {
      mine.at[i] = begin + i * of_turn_ + group_;
      mine.has[i] = movers_.index < movers_.size && (mine.at[i] < packs_ || (i == 0 && one_at_least));
    }
    return mine;
  }

  /// The first of the call's words that the thread has of pack `i` of a turn.
  MPIX_STEP std::uint32_t first_word(const TurnOfPacks<each>& mine, std::uint32_t i) const {
    return mine.at[i] * Pack::words + lane_ * own;
  }
  /// Whether that of them is one. The last one of a pack is its number.
  MPIX_STEP bool has_word(const TurnOfPacks<each>& mine, std::uint32_t i, std::uint32_t w) const {
    return mine.has[i] && first_word(mine, i) + w < words_ && (w < own - 1 || lane_ < lanes - 1);
  }

  MPIX_STEP void load(const TurnOfPacks<each>& mine, Words* sent) const {
    // What goes to all ranks alike is loaded once.
    const bool differ = c_.send_stride != 0;
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      const bool loads = rank < c_.ranks() && (differ ? rank == c_.me || c_.sends_to(rank) : rank == 0);
      const char* const from = c_.send + rank * c_.send_stride;
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < each; ++i) {
        const auto* const words = reinterpret_cast<const unsigned long long*>(from) + first_word(mine, i);
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < own; ++w) {
          sent[rank][i * own + w] = 0;
          if (loads && has_word(mine, i, w))
            sent[rank][i * own + w] =
                aligned ? load_once(words + w) : crew_.load_any(from, first_word(mine, i) + w, c_.bytes);
        }
      }
    }
  }

  MPIX_STEP void send(const TurnOfPacks<each>& mine, const Words* sent) const {
    const bool differ = c_.send_stride != 0;
    crew_.converge();
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      if (rank >= c_.ranks() || !c_.sends_to(rank)) continue;
      Pack* const place = c_.packs(rank, c_.me, number_);
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < each; ++i) {
        std::uint64_t words[own];
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < own; ++w) words[w] = differ ? sent[rank][i * own + w] : sent[0][i * own + w];
        if (lane_ == lanes - 1) words[own - 1] = number_;
        if (mine.has[i]) crew_.store_pack(place + (mine.at[i] - first_), lane_, words);
      }
    }
  }

  /// False: released.
  MPIX_STEP bool receive(const TurnOfPacks<each>& mine, Words* all, std::uint32_t call) const {
    for (std::uint32_t polls = 1;; ++polls) {
      std::uint32_t lacking = c_.ranks();
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank) {
        if (rank >= c_.ranks() || !c_.hears(rank)) continue;
        const Pack* const place = c_.packs(c_.me, rank, number_);
        MPIX_UNROLL
        for (std::uint32_t i = 0; i < each; ++i)
          if (mine.has[i]) crew_.load_pack(place + (mine.at[i] - first_), lane_, all[rank] + i * own);
        MPIX_UNROLL
        for (std::uint32_t i = 0; i < each; ++i)
          if (mine.has[i] && lane_ == lanes - 1 && all[rank][i * own + own - 1] != number_) lacking = rank;
      }
      if (crew_.together(lacking == c_.ranks())) return true;
      if (polls % Crew::polls_between_looks == 0 &&
          !crew_.together(lacking == c_.ranks() || crew_.still_waits(call, lacking, polls / Crew::polls_between_looks)))
        return false;
    }
  }

  MPIX_STEP void store(const TurnOfPacks<each>& mine, const Words* all) const {
    if constexpr (combines) {
      Words result = {};
      (void)reduction::with_usual(c_.operation, c_.element,
                                  reduction::CombineRanks<most, each * own>{all, c_.ranks(), result});
      store_words(mine, c_.recv, result);
    } else {
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank)
        if (rank < c_.ranks() && (c_.hears(rank) || (rank == c_.me && c_.kind != CollectiveKind::bcast)))
          store_words(mine, c_.recv + rank * c_.recv_stride, all[rank]);
    }
  }
  MPIX_STEP void store_words(const TurnOfPacks<each>& mine, char* to, const std::uint64_t* words) const {
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < each; ++i) {
      auto* const at = reinterpret_cast<std::uint64_t*>(to) + first_word(mine, i);
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < own; ++w) {
        if (!has_word(mine, i, w)) continue;
        if (aligned)
          at[w] = words[i * own + w];
        else
          crew_.store_any(to, first_word(mine, i) + w, c_.bytes, words[i * own + w]);
      }
    }
  }

  MPIX_STEP void leave(const CollectiveState& state) const {
    leave_state(crew_, c_, state, 1);
    if (movers_.index >= movers_.size) return;
    if (movers_.index == 0) c_.packed_steps()[crew_.part] = number_;
    if (crew_.part != 0) return;
    for (std::uint32_t part = c_.launched + movers_.index; part < Crew::counted_parts; part += movers_.size)
      c_.packed_steps()[part] = number_;
  }

  const Crew& crew_;
  const Collective& c_;
  const Workers movers_;
  const std::uint32_t lane_, group_;
  const std::uint32_t of_turn_, of_step_;  ///< packs
  const std::uint32_t words_, packs_;      ///< of the call
  std::uint64_t number_ = 0;               ///< of this step
  std::uint32_t first_ = 0;                ///< its first pack
};

}  // namespace mpix
