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
/// **In shares**, of three ranks and more: what each would send to all others is much. So ranks hold shares: all of
/// them, or where there is a root all but that; then a link carries the data once. A row has a pack for each holder. A
/// turn takes two steps:
///
/// | packs with data | in the first step      | in the second              |
/// |-----------------|------------------------|----------------------------|
/// | all-reduce      | from all to holders    | from holders to all        |
/// | reduce          | from all to holders    | from holders to the root   |
/// | bcast           | from the root to them  | from holders to each other |
///
/// A holder combines what it has got in the first step, or takes what the root sent. The next turn's first packs go out
/// before the second ones of this turn are awaited, so that a link does not rest: in a turn T a rank
///
///   receives 1(T), sends 2(T), sends 1(T + 1), receives 2(T)
///
/// A pack without data is its number alone, and costs a link little. In the first and in the last turn of a group all
/// tell all others in both steps: so for what is in front of the call, or behind it, these are steps in which each
/// group has heard from all. Between them, what o has stored at t in turn T was read before o stores in the same place,
/// in turn T + turns of a place, which are two at least:
///
/// | place of | that t has read it is known to o                                            | read by o in    |
/// |----------|-----------------------------------------------------------------------------|-----------------|
/// | 1(T), o gets 2(T) of t | by 2(T). (For a bcast holders tell the root their numbers)    | T, before 1(T + 2) |
/// | 1(T), else             | by 1(T + 1): both are holders of a reduction                  | before 1(T + 2) |
/// | 2(T), o gets 1 of t    | by 1(T + 2), which t sends behind T + 1's second step         | before 2(T + 2) |
/// | 2(T), else             | by 2(T + 1): both are holders of a bcast                      | T + 1           |
///
/// Where a place has one turn alone, all tell all in each, and a rank sends 1(T + 1) when it has received 2(T). So it
/// does for a bcast (4 H100: 64 MiB 234 us for 248), of which links are full all the same.
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
  std::uint64_t number;    ///< of its step; in shares of the first one
  std::uint32_t first;     ///< the first pack of its place
  std::uint32_t at[each];  ///< which pack of the call
  bool has[each];
};

enum class PackWork { move, combine, share };

/// One of the two steps of a turn in shares: bits of ranks.
struct ShareStep {
  std::uint32_t data_to;  ///< to whom this rank sends data
  std::uint32_t to;       ///< to whom it sends packs between the first turn and the last
  std::uint32_t from;     ///< from whom it gets some then
};

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
        packs_(in_shares ? rows_of(c) : packs_of(c)) {
    if (in_shares) know_shares();
  }

  /// False: released, or the ranks call different things.
  MPIX_STEP bool run() {
    CollectiveState state = load_state(c_.states() + crew_.part);
    number_ = load_relaxed(c_.packed_steps() + crew_.part) + 1;
    // Together with what is known of the calls before.
    TurnOfPacks<each> mine = turn_of(0);
    Words sent[most];
    load(mine, sent);
    (void)crew_.agree(true);  // all have loaded what the first of them writes when it leaves
    if (!await_call_before(crew_, c_, state)) return false;
    state.call = next_number(state.call);
    // A call whose state is written has run: nobody reads or writes memory of the library any more.
    if (!crew_.agree(run_turns(mine, sent, state.call))) return give_up_call(crew_, c_, state);
    leave(state);
    return true;
  }

 private:
  MPIX_STEP bool run_turns(TurnOfPacks<each>& mine, Words* sent, std::uint32_t call) {
    const Workers askers = crew_.askers();
    for (std::uint32_t rank = askers.index; crew_.part == 0 && rank < c_.ranks(); rank += askers.size)
      if (rank != c_.me) write_line(c_.call_line(rank, c_.me, call), c_.word, call);
    bool good = true;
    for (std::uint32_t begin = 0;;) {
      if (begin == 0 || !in_shares) send(mine, sent, differ(), 0);
      if (begin == 0 && askers.index < askers.size) {
        for (std::uint32_t rank = askers.index; good && rank < c_.ranks(); rank += askers.size)
          if (in_shares ? rank != c_.me : hears(rank)) good = calls_the_same(crew_, c_, c_.word, call, rank);
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
      if (!receive(mine, all, call, 0) || (begin == 0 && !crew_.judged_good())) return false;
      const TurnOfPacks<each> now = mine;
      begin += each * of_turn_;
      const bool goes_on = begin < packs_;
      if (goes_on) mine = turn_behind(begin);
      if constexpr (in_shares) {
        if (!exchange_shares(now, all, call, goes_on, mine, sent)) return false;
      }
      if (c_.gets_result()) store(now, all);
      if (!goes_on) break;
      if (!in_shares) load(mine, sent);
    }
    return good;
  }

  static MPIX_STEP std::uint32_t packs_of(const Collective& c) {
    return static_cast<std::uint32_t>(((c.bytes + 7) / 8 + Pack::words - 1) / Pack::words);
  }
  static MPIX_STEP std::uint32_t rows_of(const Collective& c) { return (packs_of(c) + c.holders() - 1) / c.holders(); }

  MPIX_STEP void know_shares() {
    const bool has_root = c_.has_root(), is_bcast = c_.kind == CollectiveKind::bcast, is_root = c_.me == c_.root;
    const std::uint32_t others = ((1u << c_.ranks()) - 1) & ~(1u << c_.me), root = has_root ? 1u << c_.root : 0;
    const std::uint32_t holders = others & ~root;
    steps_[0] = is_bcast ? ShareStep{is_root ? holders : 0, is_root ? holders : 0, root & others}
                         : ShareStep{holders, holders, has_root && is_root ? 0 : others};
    if (!has_root)
      steps_[1] = ShareStep{others, others, others};
    else if (is_bcast)
      steps_[1] = is_root ? ShareStep{0, 0, holders} : ShareStep{holders, others, holders};
    else
      steps_[1] = is_root ? ShareStep{0, 0, holders} : ShareStep{root, root, 0};
  }
  MPIX_STEP bool holds_share(std::uint32_t rank) const { return !c_.has_root() || rank != c_.root; }
  /// In the first turn of a group, and in the last one, all tell all.
  MPIX_STEP bool all_tell(const TurnOfPacks<each>& mine) const {
    return mine.at[0] == group_ || mine.at[0] + of_turn_ >= packs_ || c_.pack_turns < 2;
  }

  /// Of a call that has no shares.
  MPIX_STEP bool sends_to(std::uint32_t rank) const { return c_.all_hear ? rank != c_.me : c_.sends_to(rank); }
  MPIX_STEP bool hears(std::uint32_t rank) const { return c_.all_hear ? rank != c_.me : c_.hears(rank); }
  /// Whether what comes from there, or is there already, is part of the result; of what is not combined.
  MPIX_STEP bool takes(std::uint32_t rank) const {
    if (in_shares) return holds_share(rank);
    return c_.kind == CollectiveKind::bcast ? c_.hears(rank) : rank == c_.me || hears(rank);
  }
  /// Whether what goes to one rank is not what goes to the next.
  MPIX_STEP bool differ() const { return in_shares || c_.send_stride != 0; }

  /// From pack `begin` of the call on; in shares these are rows.
  MPIX_STEP TurnOfPacks<each> turn_of(std::uint32_t begin) const {
    const bool one_at_least = begin == first_ && (in_shares || packs_ > of_step_);
    TurnOfPacks<each> mine;
    mine.number = number_;
    mine.first = first_;
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < each; ++i) {
      mine.at[i] = begin + i * of_turn_ + group_;
      mine.has[i] = movers_.index < movers_.size && (mine.at[i] < packs_ || (i == 0 && one_at_least));
    }
    return mine;
  }

  MPIX_STEP TurnOfPacks<each> turn_behind(std::uint32_t begin) {
    if (begin - first_ == of_step_) {
      number_ += steps_of_a_turn;
      first_ = begin;
    }
    return turn_of(begin);
  }

  /// The first of the call's words that the thread has of pack `i` of a turn; in shares, of that rank's.
  MPIX_STEP std::uint32_t first_word(const TurnOfPacks<each>& mine, std::uint32_t i, std::uint32_t rank) const {
    if (!in_shares) return mine.at[i] * Pack::words + lane_ * own;
    const std::uint32_t place = c_.has_root() && rank > c_.root ? rank - 1 : rank;
    return (mine.at[i] * c_.holders() + place) * Pack::words + lane_ * own;
  }
  /// Whether that of them is one. The last one of a pack is its number.
  MPIX_STEP bool has_word(const TurnOfPacks<each>& mine, std::uint32_t i, std::uint32_t rank, std::uint32_t w) const {
    return mine.has[i] && first_word(mine, i, rank) + w < words_ && (w < own - 1 || lane_ < lanes - 1);
  }
  MPIX_STEP bool loads_for(std::uint32_t rank) const {
    if (rank >= c_.ranks()) return false;
    if (in_shares) return holds_share(rank) && (c_.kind != CollectiveKind::bcast || c_.me == c_.root);
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

  /// `differ`: of `sent` there is something for each rank; else one for all. `step`: of a turn in shares.
  MPIX_STEP void send(const TurnOfPacks<each>& mine, const Words* sent, bool differ, std::uint32_t step) const {
    const bool to_all = in_shares && all_tell(mine);
    crew_.converge();
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      if (rank >= c_.ranks()) continue;
      if (in_shares ? rank == c_.me || !(to_all || (steps_[step].to >> rank & 1)) : !sends_to(rank)) continue;
      const bool has_data = !in_shares || (steps_[step].data_to >> rank & 1);
      const std::uint64_t number = mine.number + step;
      Pack* const place = c_.packs(rank, c_.me, number);
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < each; ++i) {
        std::uint64_t words[own];
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < own; ++w) words[w] = differ ? sent[rank][i * own + w] : sent[0][i * own + w];
        if (lane_ == lanes - 1) words[own - 1] = number;
        if (mine.has[i] && (has_data || lane_ == lanes - 1))
          crew_.store_pack(place + (mine.at[i] - mine.first), lane_, words);
      }
    }
  }

  /// False: released.
  MPIX_STEP bool receive(const TurnOfPacks<each>& mine, Words* all, std::uint32_t call, std::uint32_t step) const {
    const bool from_all = in_shares && all_tell(mine);
    crew_.converge();
    for (std::uint32_t polls = 1;; ++polls) {
      std::uint32_t lacking = c_.ranks();
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank) {
        if (rank >= c_.ranks()) continue;
        if (in_shares ? rank == c_.me || !(from_all || (steps_[step].from >> rank & 1)) : !hears(rank)) continue;
        const Pack* const place = c_.packs(c_.me, rank, mine.number + step);
        MPIX_UNROLL
        for (std::uint32_t i = 0; i < each; ++i)
          if (mine.has[i]) crew_.load_pack(place + (mine.at[i] - mine.first), lane_, all[rank] + i * own);
        MPIX_UNROLL
        for (std::uint32_t i = 0; i < each; ++i)
          if (mine.has[i] && lane_ == lanes - 1 && all[rank][i * own + own - 1] != mine.number + step) lacking = rank;
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

  /// `all`: what all have sent of this rank's share; then everybody's share, done. `next`: the turn behind, if there is
  /// one; its first packs, `sent`, go out, too. False: released.
  MPIX_STEP bool exchange_shares(const TurnOfPacks<each>& mine, Words* all, std::uint32_t call, bool goes_on,
                                 const TurnOfPacks<each>& next, Words* sent) const {
    Words share[1] = {};
    if (c_.kind != CollectiveKind::bcast && holds_share(c_.me)) combine(all, share[0]);
    MPIX_UNROLL
    for (std::uint32_t rank = 0; rank < most; ++rank) {
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < each * own; ++w)
        if (c_.kind == CollectiveKind::bcast && rank == c_.root) share[0][w] = all[rank][w];
    }
    send(mine, share, false, 1);
    if (goes_on) load(next, sent);
    const bool ahead = c_.kind != CollectiveKind::bcast && c_.pack_turns > 1;
    if (goes_on && ahead) send(next, sent, true, 0);
    if (!receive(mine, all, call, 1)) return false;
    if (goes_on && !ahead) send(next, sent, true, 0);
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
  ShareStep steps_[2] = {};
  std::uint64_t number_ = 0;  ///< of this step; in shares, of the first of its two
  std::uint32_t first_ = 0;   ///< its first pack
};

}  // namespace mpix
