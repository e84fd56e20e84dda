// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/collective_lines.h"

/// The steps of a call by packs (pack.h).
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
/// are. Of two ranks those of several steps are not rooted: both send packs, one of them without data (all_hear).
///
/// **In shares**, of three ranks and more: what each would send to all others is much. So rank r has a share: of each
/// row of as many packs as there are ranks, the one in place r. A turn takes two steps. In the first one all send r
/// what it has a share in, and r combines that, or takes what the root sent; in the second all send their shares to
/// all. All hear from all in both, also where there is a root: those who have nothing to send send packs without data.
/// Turns that lie in one place may follow each other in these two steps: a rank has what it waits for in both before it
/// goes on to the next two.
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

enum class PackWork { move, combine, share };

/// `each`: turns at once; pack_turns is a multiple of it. `aligned`: whole words, at addresses that are multiples of 8.
template <std::uint32_t most, std::uint32_t each, PackWork work, bool aligned, class Crew>
class PackCall {
  static constexpr std::uint32_t lanes = Crew::lanes, own = 16 / lanes;
  static constexpr bool in_shares = work == PackWork::share;
  static constexpr std::uint32_t steps_of_a_turn = in_shares ? 2 : 1;
  static_assert(!in_shares || each == 1, "the same on all ranks: one that sends shares waits for no later turn");
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
        packs_(in_shares ? rows_of(c) : packs_of(c)) {}

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
      send(mine, sent, differ());
      if (begin == 0 && askers.index < askers.size) {
        for (std::uint32_t rank = askers.index; good && rank < c_.ranks(); rank += askers.size)
          if (hears(rank)) good = calls_the_same(crew_, c_, c_.word, state.call, rank);
        crew_.judge(good);
      }
      if (movers_.index >= movers_.size) break;
      Words all[most];
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank) {
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < each * own; ++w) all[rank][w] = differ() ? sent[rank][w] : sent[0][w];
      }
      // Nobody writes a result before all have been asked what they call.
      if (!receive(mine, all, state.call) || (begin == 0 && !crew_.judged_good())) return false;
      if (in_shares && !exchange_shares(mine, all, state.call)) return false;
      if (c_.gets_result()) store(mine, all);
      begin += each * of_turn_;
      if (begin >= packs_) break;
      if (begin - first_ == of_step_) {
        number_ += steps_of_a_turn;
        first_ = begin;
      }
      mine = turn_of(begin);
      load(mine, sent);
    }
    if (good) leave(state);
    return good;
  }

 private:
  static MPIX_STEP std::uint32_t packs_of(const Collective& c) {
    return static_cast<std::uint32_t>(((c.bytes + 7) / 8 + Pack::words - 1) / Pack::words);
  }
  static MPIX_STEP std::uint32_t rows_of(const Collective& c) { return (packs_of(c) + c.ranks() - 1) / c.ranks(); }

  MPIX_STEP bool sends_to(std::uint32_t rank) const {
    return in_shares || c_.all_hear ? rank != c_.me : c_.sends_to(rank);
  }
  MPIX_STEP bool hears(std::uint32_t rank) const { return in_shares || c_.all_hear ? rank != c_.me : c_.hears(rank); }
  /// Whether what comes from there, or is there already, is part of the result; of what is not combined.
  MPIX_STEP bool takes(std::uint32_t rank) const {
    if (in_shares || c_.kind != CollectiveKind::bcast) return rank == c_.me || hears(rank);
    return c_.hears(rank);
  }
  /// Whether what goes to one rank is not what goes to the next.
  MPIX_STEP bool differ() const { return in_shares || c_.send_stride != 0; }

  /// From pack `begin` of the call on; in shares these are rows.
  MPIX_STEP TurnOfPacks<each> turn_of(std::uint32_t begin) const {
    const bool one_at_least = begin == first_ && (in_shares || packs_ > of_step_);
    TurnOfPacks<each> mine;
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < each; ++i) {
      mine.at[i] = begin + i * of_turn_ + group_;
      mine.has[i] = movers_.index < movers_.size && (mine.at[i] < packs_ || (i == 0 && one_at_least));
    }
    return mine;
  }

  /// The first of the call's words that the thread has of pack `i` of a turn; in shares, of that rank's.
  MPIX_STEP std::uint32_t first_word(const TurnOfPacks<each>& mine, std::uint32_t i, std::uint32_t rank) const {
    return (in_shares ? mine.at[i] * c_.ranks() + rank : mine.at[i]) * Pack::words + lane_ * own;
  }
  /// Whether that of them is one. The last one of a pack is its number.
  MPIX_STEP bool has_word(const TurnOfPacks<each>& mine, std::uint32_t i, std::uint32_t rank, std::uint32_t w) const {
    return mine.has[i] && first_word(mine, i, rank) + w < words_ && (w < own - 1 || lane_ < lanes - 1);
  }
  MPIX_STEP bool loads_for(std::uint32_t rank) const {
    if (rank >= c_.ranks()) return false;
    if (in_shares) return c_.kind != CollectiveKind::bcast || c_.me == c_.root;
    // What goes to all ranks alike is loaded once.
    if (differ()) return rank == c_.me || sends_to(rank);
    return rank == 0 && (c_.kind != CollectiveKind::bcast || c_.me == c_.root);
  }

  MPIX_STEP void load(const TurnOfPacks<each>& mine, Words* sent) const {
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      const bool loads = loads_for(rank);
      const char* const from = c_.send + rank * c_.send_stride;
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < each; ++i) {
        const std::uint32_t first = first_word(mine, i, rank);
        const auto* const words = reinterpret_cast<const unsigned long long*>(from) + first;
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < own; ++w) {
          sent[rank][i * own + w] = 0;
          if (loads && has_word(mine, i, rank, w))
            sent[rank][i * own + w] = aligned ? load_once(words + w) : crew_.load_any(from, first + w, c_.bytes);
        }
      }
    }
  }

  /// `differ`: of `sent` there is something for each rank; else one for all.
  MPIX_STEP void send(const TurnOfPacks<each>& mine, const Words* sent, bool differ) const {
    crew_.converge();
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      if (rank >= c_.ranks() || !sends_to(rank)) continue;
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
        if (rank >= c_.ranks() || !hears(rank)) continue;
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

  MPIX_STEP void combine(const Words* all, std::uint64_t* result) const {
    (void)reduction::with_usual(c_.operation, c_.element,
                                reduction::CombineRanks<most, each * own>{all, c_.ranks(), result});
  }

  /// `all`: what all have sent of this rank's share; then everybody's share, done. False: released.
  MPIX_STEP bool exchange_shares(const TurnOfPacks<each>& mine, Words* all, std::uint32_t call) {
    Words share[1] = {};
    if (c_.kind != CollectiveKind::bcast) combine(all, share[0]);
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < each * own; ++w)
        if (c_.kind == CollectiveKind::bcast && rank == c_.root) share[0][w] = all[rank][w];
    }
    ++number_;
    send(mine, share, false);
    if (!receive(mine, all, call)) return false;
    --number_;
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < each * own; ++w)
        if (rank == c_.me) all[rank][w] = share[0][w];
    }
    return true;
  }

  MPIX_STEP void store(const TurnOfPacks<each>& mine, const Words* all) const {
    if constexpr (work == PackWork::combine) {
      Words result = {};
      combine(all, result);
      store_words(mine, 0, c_.recv, result);
    } else {
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank)
        if (rank < c_.ranks() && takes(rank)) store_words(mine, rank, c_.recv + rank * c_.recv_stride, all[rank]);
    }
  }
  MPIX_STEP void store_words(const TurnOfPacks<each>& mine, std::uint32_t rank, char* to,
                             const std::uint64_t* words) const {
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < each; ++i) {
      const std::uint32_t first = first_word(mine, i, rank);
      auto* const at = reinterpret_cast<std::uint64_t*>(to) + first;
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < own; ++w) {
        if (!has_word(mine, i, rank, w)) continue;
        if (aligned)
          at[w] = words[i * own + w];
        else
          crew_.store_any(to, first + w, c_.bytes, words[i * own + w]);
      }
    }
  }

  MPIX_STEP void leave(const CollectiveState& state) const {
    leave_state(crew_, c_, state, 1);
    if (movers_.index >= movers_.size) return;
    const std::uint64_t last = number_ + steps_of_a_turn - 1;
    if (movers_.index == 0) c_.packed_steps()[crew_.part] = last;
    if (crew_.part != 0) return;
    for (std::uint32_t part = c_.launched + movers_.index; part < Crew::counted_parts; part += movers_.size)
      c_.packed_steps()[part] = last;
  }

  const Crew& crew_;
  const Collective& c_;
  const Workers movers_;
  const std::uint32_t lane_, group_;
  const std::uint32_t of_turn_, of_step_;  ///< packs
  const std::uint32_t words_, packs_;      ///< of the call; in shares it is rows of packs that it has
  std::uint64_t number_ = 0;               ///< of this step; in shares, of the first of its two
  std::uint32_t first_ = 0;                ///< its first pack
};

}  // namespace mpix
