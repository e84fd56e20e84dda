// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "reader.h"

/// The usual wait, on a GPU.
namespace mpix {
namespace dev {

#if MPIX_ON_DEVICE
/// What a wait takes is instructions, one behind the other: so the usual case has as few as can be. What comes first is
/// what is asked for. Where it is not, as a neighbour is an iteration ahead, or some are pending, there is a little
/// more; for all else there is advance(), which is so long that a multiprocessor with many ranks would fetch code most
/// of the time.
constexpr std::uint32_t most_usual_looks = 1u << 13;
constexpr std::uint32_t most_usual_looks_between_nodes = 32;

/// `no_older`: what is pending is not asked for.
MPIX_DEV_FN bool is_usual(Ctx& c, const Team& team, int window, int source, int tag, int count, bool no_older) {
  // Not one after another: each takes a load.
  // (The first warp may be writing parts of windows already, where any is asked for.)
  const bool known = (window == -1) | (window == own_part(c, static_cast<std::uint32_t>(window)).window);
  const std::uint32_t width = warp_width(), pending = c.state.end - c.state.first;
  return (c.front_shift != 0) & (no_older | (pending <= width)) & (team.size >= width) & (count > 0) & known &
         (static_cast<std::uint32_t>(source + 1) <= c.p.ranks) & (tag >= -1);
}

/// One thread, which has seen a notification that is to be acquired. `ready`: pairs of lines there that have been seen.
/// A fence holds for all of these; where there is one alone, a load is less.
MPIX_DEV_FN void acquire(Ctx& c, std::uint32_t process, std::uint64_t at, std::uint32_t ready, const Line* entry) {
  Fenced& fenced = c.fenced[process % fenced_lanes];
  if (fenced.process == process && at < fenced.end) return;
  if (ready == 1) {
    acquire_entry(entry);
    return;
  }
  fenced = Fenced{process, at + 2 * ready};
  if (process == c.p.process)
    fence_on_device();
  else
    fence_acquire();
}

/// One thread: what came with the entry is where it belongs. `head`: of what lies behind it.
MPIX_DEV_FN void leave_entry(Ctx& c, std::uint32_t process, std::uint64_t head, std::uint32_t left) {
  if (left > 1)
    leave_lane(c, process, head);
  else
    c.owed = Owed{process, true, head};
}

/// What a wait asks for, as bits of a notification's `what`, upper and lower half.
struct Sought {
  std::uint32_t tag, tag_mask, rest, rest_mask;

  MPIX_DEV_METHOD explicit Sought(const Query& query)
      : tag(static_cast<std::uint32_t>(query.tag)),
        tag_mask(query.tag < 0 ? 0 : 0xffffffffu),
        rest((static_cast<std::uint32_t>(query.source) & 0xffffffu) | static_cast<std::uint32_t>(query.window) << 24),
        rest_mask((query.source < 0 ? 0 : 0xffffffu) | (query.window < 0 ? 0 : 0xff000000u)) {}
  /// 0: it is asked for.
  MPIX_DEV_METHOD std::uint32_t differs(std::uint32_t low, std::uint32_t high) const {
    return ((low ^ tag) & tag_mask) | ((high ^ rest) & rest_mask);
  }
  MPIX_DEV_METHOD bool is(std::uint64_t what) const {
    return differs(static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(what >> 32)) == 0;
  }
};

/// First warp: lane p of those in front of a lane has words 2 p and 2 p + 1 of the data of its first notification.
MPIX_DEV_FN std::uint32_t words_seen(std::uint32_t shift) { return 2u << shift; }

/// One thread of the first warp, which has seen the entry.
MPIX_DEV_FN void hand_out(Ctx& c, bool wants_status, std::uint64_t what, std::uint64_t how, std::uint32_t process,
                          std::uint64_t head, std::uint32_t left) {
  if (wants_status) c.status = status_of(Notification{what, how});
  leave_entry(c, process, head, left);
}

/// One thread of the first warp: the team moves the data, and then `found` was taken.
MPIX_DEV_FN void hand_to_team(Ctx& c, bool wants_status, char* to, const Found& found, std::uint32_t left) {
  c.found = found;
  c.to = to;
  if (wants_status) c.status = status_of(found.notification);
  if (left == 1) c.owed = Owed{found.process, true, found.at + found.lines};
}

enum class Announced : std::uint32_t { is_none, was_taken, takes_long };

/// First warp. The first line of an entry at `at` of that lane is there, and is asked for: the second one says that the
/// data are, and each look acquires. Nothing that its writer still does waits for this rank.
MPIX_DEV_FN Announced take_announced(Ctx& c, const Workers& warp, std::uint32_t process, std::uint64_t at,
                                     std::uint64_t what, bool wants_status, std::uint32_t left) {
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  const Line* const second = c.lanes + (process << shift) + (static_cast<std::uint32_t>(at) & mask) + 1;
  const std::uint32_t lap = lap_of_line(at, shift);
  std::uint64_t how = 0;
  MPIX_NO_UNROLL
  for (std::uint32_t looks = 0; ballot(warp, !line_acquired(second, lap, &how)) != 0; ++looks)
    if (looks == most_usual_looks) return Announced::takes_long;
  if (kind_of(how) != direct) return Announced::is_none;  // its lines came one soon after the other
  sync_warp(warp);
  if (warp.index == 0) hand_out(c, wants_status, what, how, process, at + entry_lines, left);
  return Announced::was_taken;
}

/// First warp. Takes what is asked for of what is pending, oldest first: these are as few as the warp has threads.
MPIX_DEV_FN void take_few_older(Ctx& c, const Workers& warp, const Sought& sought, bool wants_status,
                                std::uint32_t& left) {
  const std::uint32_t first = c.state.first, i = first + warp.index;
  Notification* const pending = pending_of(c, c.inbox);
  Notification one{dead, 0};
  if (i < c.state.end) one = pending[i];
  const bool lives = one.what != dead, fits = lives && sought.is(one.what);
  const Ballot fitting = ballot(warp, fits);
  if (fitting == 0) return;
  const std::uint32_t all = count_of(fitting), count = all < left ? all : left;
  const std::uint32_t before = count_of(fitting & ((Ballot{1} << warp.index) - 1));
  const bool takes = fits && before < count;
  if (takes) pending[i].what = dead;
  if (wants_status && takes && before + 1 == count) c.status = status_of(one);
  const Ballot alive = ballot(warp, lives && !takes);
  left -= count;
  sync_warp(warp);  // all have read what changes
  if (warp.index == 0) {
    c.state.live -= count;
    c.state.first = alive != 0 ? first + first_of(alive) : 0;
    if (alive == 0) c.state.end = 0;
  }
  sync_warp(warp);
}

/// First warp: until it has taken `left`. Step::move: all but the last one, c.found, whose data the team moves.
/// Step::set_aside: c.found is not asked for.
MPIX_DEV_FN Step take_as_usual(Ctx& c, const Workers& warp, const Query& query, bool wants_status, bool no_older,
                               std::uint32_t& left) {
  const std::uint32_t shift = c.front_shift, lane_shift = c.p.lane_shift, mask = (1u << lane_shift) - 1;
  const std::uint32_t process = warp.index >> shift, pair = warp.index & ((1u << shift) - 1);
  const bool mine = process < c.p.processes;
  const Sought sought(query);
  if (warp.index == 0) leave_owed(c);
  sync_warp(warp);
  if (!no_older && c.state.live != 0) {
    take_few_older(c, warp, sought, wants_status, left);
    if (left == 0) return Step::over;
  }
  const Ballot fronts = ballot(warp, mine && pair == 0);
  const Ballot all_in_front = ~Ballot{0} >> (warp_width() - (1u << shift));
  const std::uint32_t most_looks = c.p.far_ranks ? most_usual_looks_between_nodes : most_usual_looks;
  const Line* const lane = c.lanes + ((mine ? process : 0) << lane_shift);
  std::uint64_t head = c.heads[process % most_fronts];
  std::uint32_t turn = c.state.turn, looks = 0, narrow_looks = wide_looks;
  const auto go_on = [&](std::uint32_t from) {
    turn = from + 1 == c.p.processes ? 0 : from + 1;
    looks = 0, narrow_looks = wide_looks;
  };
  // Data go where the last ones went, as a rule.
  OwnPart part = c.last_part;
  while (true) {
    const std::uint64_t n = head + entry_lines + 2 * pair;
    const Line* const entry = lane + (static_cast<std::uint32_t>(head) & mask);
    const Line* const own = lane + (static_cast<std::uint32_t>(n) & mask);
    const std::uint32_t lap = mine ? lap_of_line(head, lane_shift) : no_lap;
    const std::uint32_t own_lap = lap_of_line(n, lane_shift);
    SeenLine seen[4];
    Ballot come = 0;
    std::uint32_t lap_seen = no_lap;
    MPIX_NO_UNROLL
    while (true) {
      const bool wide = looks < narrow_looks;  // at the data as well
      lap_seen = wide ? own_lap : no_lap;
      look_at_lines(entry, wide ? own : entry, seen);
      come = ballot(warp, seen[0].lacks(lap) == 0) & fronts;
      if (come != 0) break;
      if (++looks == most_looks) return Step::unusual;
      doze(looks);
    }
    // Whole words, to that part of a window, or none at all: nothing is left to ask but whether they have come. By bits
    // that differ, as each question by itself takes its time.
    const std::uint32_t upper = seen[1].high, words = upper >> 15 & 0x1fff;
    const std::uint64_t displacement = two_words(seen[1].low, upper & 0xfff);
    const std::uint32_t no_entry = seen[0].lacks(lap) | seen[1].lacks(lap);
    const std::uint32_t other =
        (seen[0].high >> 24 ^ static_cast<std::uint32_t>(part.window)) | ((upper >> 12 | seen[1].low) & 7);
    const bool fits = (other == 0) & (displacement + 8 * words < part.present);
    const std::uint32_t not_asked = sought.differs(seen[0].low, seen[0].high);
    const std::uint32_t not_in_lines = no_entry | ((upper & 0xf0000000u) ^ (std::uint32_t{in_lines} << 28));
    const bool has_place = fits | ((upper & 0xffff000u) == 0);
    const bool is_plain = ((not_in_lines | not_asked) == 0) & has_place;
    const std::uint32_t missing =
        (2 * pair < words ? seen[2].lacks(lap_seen) : 0) | (2 * pair + 1 < words ? seen[3].lacks(lap_seen) : 0);
    const bool is_ready = is_plain & (missing == 0) & (words <= words_seen(shift));
    const Ballot ready = ballot(warp, is_ready), here = ballot(warp, no_entry == 0) & fronts;
    const Ballot behind = ~((Ballot{1} << (turn << shift)) - 1);
    const Ballot candidates = here != 0 ? here : come;
    const std::uint32_t who = first_of((candidates & behind) != 0 ? candidates & behind : candidates);
    const std::uint32_t from = who >> shift;  // in turns
    if ((ready >> who & all_in_front) == all_in_front) {
      if (process == from) {
        auto* const there = reinterpret_cast<std::uint64_t*>(part.base + displacement) + 2 * pair;
        if (2 * pair < words) there[0] = two_words(seen[2].low, seen[2].high);
        if (2 * pair + 1 < words) there[1] = two_words(seen[3].low, seen[3].high);
        head += (entry_lines + words + 1) / 2 * 2;
      }
      if (wants_status && warp.index == who)
        c.status = status_of(Notification{two_words(seen[0].low, seen[0].high), two_words(seen[1].low, upper)});
      if (left == 1) {
        if (warp.index == who) c.owed = Owed{from, true, head};
        return Step::over;
      }
      --left;
      sync_warp(warp);  // all have read what is given back
      if (warp.index == who) leave_lane(c, from, head);
      sync_warp(warp);
      go_on(from);
      continue;
    }
    // More of them than the warp has looked at: by the team.
    if ((ballot(warp, is_plain && words > words_seen(shift)) >> who & 1) != 0) {
      if (warp.index == who)
        hand_to_team(c, wants_status, part.base + displacement,
                     Found{from, (entry_lines + words + 1) / 2 * 2, head,
                           Notification{two_words(seen[0].low, seen[0].high), two_words(seen[1].low, upper)}},
                     left);
      return Step::move;
    }
    // Its data are in the window, or there are none.
    const bool is_direct = (no_entry | not_asked | (upper & 0xf0000000u)) == 0;
    if ((ballot(warp, is_direct) >> who & 1) != 0) {
      const Ballot gaps = ~(ballot(warp, (seen[2].lacks(lap_seen) | seen[3].lacks(lap_seen)) == 0) >> who);
      sync_warp(warp);
      if (warp.index == who) {
        acquire(c, from, head, 1 + (gaps == 0 || first_of(gaps) > 1u << shift ? 1u << shift : first_of(gaps)), entry);
        hand_out(c, wants_status, two_words(seen[0].low, seen[0].high), two_words(seen[1].low, upper), from,
                 head + entry_lines, left);
      }
      if (--left == 0) return Step::over;
      if (process == from) head += entry_lines;
      go_on(from);
      sync_warp(warp);
      continue;
    }
    const std::uint64_t what = two_words(from_thread(warp, seen[0].low, who), from_thread(warp, seen[0].high, who));
    const std::uint64_t at = from_thread(warp, head, who);
    if (here == 0) {
      const Announced next =
          sought.is(what) ? take_announced(c, warp, from, at, what, wants_status, left) : Announced::is_none;
      if (next == Announced::takes_long) return Step::unusual;
      if (next == Announced::is_none) {
        if (++looks == most_looks) return Step::unusual;
        continue;
      }
      if (--left == 0) return Step::over;
      if (process == from) head += entry_lines;
      go_on(from);
      sync_warp(warp);
      continue;
    }
    const std::uint64_t how = two_words(from_thread(warp, seen[1].low, who), from_thread(warp, seen[1].high, who));
    const std::uint32_t kind = kind_of(how), lines = lines_of(how);
    if (!sought.is(what) && kind != flushing && c.state.end < c.p.most_pending) {
      // A neighbour is ahead, as a rule: its notification joins those that are pending, and what is behind it comes.
      const bool can_move = (not_in_lines == 0) & has_place & (missing == 0) & (words <= words_seen(shift));
      const bool all_come = (ballot(warp, can_move) >> who & all_in_front) == all_in_front;
      if (all_come || kind == direct || kind == was_read) {
        if (all_come && process == from) {
          auto* const there = reinterpret_cast<std::uint64_t*>(part.base + displacement) + 2 * pair;
          if (2 * pair < words) there[0] = two_words(seen[2].low, seen[2].high);
          if (2 * pair + 1 < words) there[1] = two_words(seen[3].low, seen[3].high);
        }
        sync_warp(warp);
        if (warp.index == 0) {
          if (!all_come) acquire_entry(c.lanes + (from << lane_shift) + (static_cast<std::uint32_t>(at) & mask));
          pending_of(c, c.inbox)[c.state.end] = as_pending(what, how);
          ++c.state.end;
          ++c.state.live;
          leave_lane(c, from, at + lines);
        }
        sync_warp(warp);
        if (process == from) head += lines;
        go_on(from);
        continue;
      }
    }
    if (kind == flushing || !sought.is(what)) {
      if (warp.index == 0) c.found = Found{from, lines, at, Notification{what, how}};
      return Step::set_aside;
    }
    const std::uint32_t bytes = kind == in_lines ? static_cast<std::uint32_t>(how >> 44) & 0xffff : 0;
    if (bytes > 0) {
      const OwnPart& its_part = own_part(c, window_of(what));
      if (its_part.window != static_cast<std::int32_t>(window_of(what))) {
        sync_warp(warp);
        if (warp.index == 0) know_own_part(c, window_of(what));
        sync_warp(warp);
      }
      part = its_part;
      const std::uintptr_t odd = (reinterpret_cast<std::uintptr_t>(part.base) | displacement_of(how) | bytes) & 7;
      if (part.present <= displacement_of(how) + bytes || odd != 0) return Step::unusual;
    }
    const bool by_team = bytes > 0 && (how & after_puts) != 0;
    if (bytes > 0 && !by_team) {  // its data come, or go to another part than the last ones
      sync_warp(warp);
      if (warp.index == 0) c.last_part = part;
      if (++looks == most_looks) return Step::unusual;
      narrow_looks = looks + wide_looks;
      continue;
    }
    sync_warp(warp);
    if (warp.index == 0) {
      if ((how & after_puts) != 0)
        acquire_entry(c.lanes + (from << lane_shift) + (static_cast<std::uint32_t>(at) & mask));
      if (by_team)
        hand_to_team(c, wants_status, part.base + displacement_of(how), Found{from, lines, at, Notification{what, how}},
                     left);
      else
        hand_out(c, wants_status, what, how, from, at + lines, left);
    }
    if (by_team) return Step::move;
    if (--left == 0) return Step::over;
    if (process == from) head += lines;
    go_on(from);
    sync_warp(warp);
  }
}

/// The team: moves the data of c.found, whole words; it meets when they are in the window.
MPIX_DEV_FN void move_found(Ctx& c, const Team& team, char* to) {
  const std::uint64_t first = c.found.at + entry_lines;
  const std::uint32_t words = static_cast<std::uint32_t>(c.found.notification.how >> 47) & 0x1fff;
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  const Line* const lane = c.lanes + (c.found.process << shift);
  auto* const there = reinterpret_cast<std::uint64_t*>(to);
  MPIX_NO_UNROLL
  for (std::uint32_t i = team.index; i < words; i += team.size) {
    const std::uint64_t n = first + i;
    const Line* const line = lane + (static_cast<std::uint32_t>(n) & mask);
    const std::uint32_t lap = lap_of_line(n, shift);
    std::uint64_t word = 0;
    for (std::uint32_t looks = 1; !line_arrived(line, lap, &word); ++looks)
      if (looks % looks_between_notes == 0 && load_relaxed(c.p.released) != 0) break;
    there[i] = word;
  }
  sync_team(team);
}

/// The team. Step::over: all are taken; Step::none: nothing was done; else c.needs are left. Without a call in between:
/// see put_as_usual().
MPIX_DEV_CALL Step wait_as_usual(Ctx& c, int window, int source, int tag, int count, Status* status, bool no_older) {
  const Team team = team_of(c);
  sync_team(team);
  auto left = static_cast<std::uint32_t>(count);
  while (true) {
    // The first warp alone asks: it may have changed what the answer depends on before another one looks.
    if (in_first_warp(team)) {
      Step step = Step::none;
      if (team.index == 0) c.step = Step::over;
      if (is_usual(c, team, window, source, tag, count, no_older))
        step = take_as_usual(c, first_warp_of(team), Query{window, source, tag}, status != nullptr, no_older, left);
      if (step != Step::over && team.index == 0) {
        c.step = step;
        c.needs = left;
      }
    }
    sync_team(team);
    const Step step = c.step;
    left = c.needs;
    if (step == Step::move) {
      move_found(c, team, c.to);
      if (--left > 0) {
        if (team.index == 0) leave_lane(c, c.found.process, c.found.at + c.found.lines);
        no_older = true;
        sync_team(team);
        continue;
      }
    } else if (step != Step::over) {
      return step;
    }
    if (status) *status = c.status;
    return Step::over;
  }
}
#endif

}  // namespace dev
}  // namespace mpix
