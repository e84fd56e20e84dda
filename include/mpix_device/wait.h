// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "reader.h"

/// Wait and test: what ranks do to have notifications.
namespace mpix {
namespace dev {

MPIX_DEV_FN void ask(Ctx& c, const Team& team, DevCall call, int window, int source, int tag, int count, bool stays,
                     bool wants_status) {
  if (team.index == 0) {
    c.call = call;
    c.query = Query{window, source, tag};
    c.needs = c.total = static_cast<std::uint32_t>(count);
    c.asks = c.stays = stays;
    c.step = Step::over;
    c.wants_status = wants_status;
    if (wants_status) c.status = Status{-1, -1, -1, 0, 0};
    ++c.waits;
  }
  sync_team(team);
}

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
  const bool known = window < 0 || window == own_part(c, static_cast<std::uint32_t>(window)).window;
  return (c.front_shift != 0) & (no_older | (c.state.live == 0)) & (team.size >= warp_width()) & (count > 0) & known &
         (window >= -1) & (source >= -1) & (source < static_cast<int>(c.p.ranks)) & (tag >= -1);
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

enum class Announced : std::uint32_t { is_none, was_taken, takes_long };

/// First warp. The first line of an entry at `at` of that lane is there, and is asked for: the second one says that the
/// data are, and each look acquires. Nothing that its writer still does waits for this rank.
MPIX_DEV_FN Announced take_announced(Ctx& c, const Workers& warp, std::uint32_t process, std::uint64_t at,
                                     std::uint64_t what, bool wants_status, std::uint32_t left) {
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  const Line* const second = c.lanes + (process << shift) + (static_cast<std::uint32_t>(at) & mask) + 1;
  const auto lap = static_cast<std::uint32_t>(at >> shift) + 1;
  std::uint64_t how = 0;
  MPIX_NO_UNROLL
  for (std::uint32_t looks = 0; ballot(warp, !line_acquired(second, lap, &how)) != 0; ++looks)
    if (looks == most_usual_looks) return Announced::takes_long;
  if (kind_of(how) != direct) return Announced::is_none;  // its lines came one soon after the other
  sync_warp(warp);
  if (warp.index == 0) {
    if (wants_status) c.status = status_of(Notification{what, how});
    leave_entry(c, process, at + entry_lines, left);
  }
  return Announced::was_taken;
}

/// First warp: until it has taken `left`. Step::move: all but the last one, c.found, whose data the team moves.
/// Step::set_aside: c.found is not asked for.
MPIX_DEV_FN Step take_as_usual(Ctx& c, const Workers& warp, const Query& query, bool wants_status,
                               std::uint32_t& left) {
  const std::uint32_t shift = c.front_shift, lane_shift = c.p.lane_shift, mask = (1u << lane_shift) - 1;
  const std::uint32_t process = warp.index >> shift, pair = warp.index & ((1u << shift) - 1);
  const bool mine = process < c.p.processes;
  if (warp.index == 0) leave_owed(c);
  sync_warp(warp);
  const Ballot fronts = ballot(warp, mine && pair == 0);
  const std::uint32_t most_looks = c.p.far_ranks ? most_usual_looks_between_nodes : most_usual_looks;
  const Line* const lane = c.lanes + (process << lane_shift);
  std::uint64_t head = mine ? heads_of(c.inbox)[process] : 0;
  while (true) {
    const std::uint64_t n = head + 2 * pair;
    const Line* const line = lane + (static_cast<std::uint32_t>(n) & mask);
    const auto lap = static_cast<std::uint32_t>(n >> lane_shift) + 1;
    std::uint64_t data[2] = {0, 0};
    std::uint32_t arrived = 0;
    Ballot here = 0;
    MPIX_NO_UNROLL
    for (std::uint32_t looks = 0;; ++looks) {
      if (looks == most_looks) return Step::unusual;
      doze(looks);
      if (mine && (pair == 0 || looks < wide_looks)) arrived = lines_arrived(line, lap, data);
      here = ballot(warp, arrived == 3);
      if ((here & fronts) != 0) break;
      const Ballot announced = ballot(warp, arrived == 1) & fronts;
      if (announced == 0) continue;
      const std::uint32_t who = first_of(announced), from = who >> shift;
      const std::uint64_t what = from_thread(warp, data[0], who), at = from_thread(warp, head, who);
      if (!matches(what, query)) continue;
      const Announced seen = take_announced(c, warp, from, at, what, wants_status, left);
      if (seen == Announced::is_none) continue;
      if (seen == Announced::takes_long) return Step::unusual;
      if (process == from) head += entry_lines;
      break;
    }
    if ((here & fronts) == 0) {  // it was announced
      if (--left == 0) return Step::over;
      sync_warp(warp);
      continue;
    }
    // In turns, from that process on.
    const Ballot later = here & fronts & ~((Ballot{1} << (c.state.turn << shift)) - 1);
    const std::uint32_t who = first_of(later != 0 ? later : here & fronts), from = who >> shift;
    const std::uint64_t what = from_thread(warp, data[0], who), how = from_thread(warp, data[1], who);
    const std::uint32_t kind = kind_of(how);
    if (kind == flushing || !matches(what, query)) {
      const std::uint64_t at = from_thread(warp, head, who);
      if (warp.index == 0) c.found = Found{from, lines_of(how), at, Notification{what, how}};
      return Step::set_aside;
    }
    const std::uint32_t bytes = kind == in_lines ? static_cast<std::uint32_t>(how >> 44) & 0xffff : 0;
    bool is_moved = true;
    if (bytes > 0) {
      const OwnPart& part = own_part(c, window_of(what));
      if (part.window != static_cast<std::int32_t>(window_of(what))) {
        sync_warp(warp);
        if (warp.index == 0) know_own_part(c, window_of(what));
        sync_warp(warp);
      }
      char* const to = part.base + displacement_of(how);
      if (part.present <= displacement_of(how) + bytes || ((reinterpret_cast<std::uintptr_t>(to) | bytes) & 7) != 0)
        return Step::unusual;
      const std::uint32_t words = bytes / 8, pairs = (words + 1) / 2, word = 2 * (pair - 1);
      is_moved = pairs < 1u << shift;
      if (is_moved) {
        // Those that look at the data; as a rule these have come.
        const bool has_some = process == from && pair - 1 < pairs;
        const std::uint32_t wanted = word + 1 < words ? 3 : 1;
        MPIX_NO_UNROLL
        for (std::uint32_t looks = 0; ballot(warp, has_some && (arrived & wanted) != wanted) != 0; ++looks) {
          if (looks == most_usual_looks) return Step::unusual;
          if (has_some) arrived = lines_arrived(line, lap, data);
        }
        auto* const words_there = reinterpret_cast<std::uint64_t*>(to);
        if (has_some) words_there[word] = data[0];
        if (has_some && wanted == 3) words_there[word + 1] = data[1];
      }
    }
    const std::uint64_t at = from_thread(warp, head, who);
    const std::uint32_t lines = (entry_lines + bytes / 8 + 1) / 2 * 2;
    sync_warp(warp);
    if (warp.index == 0) {
      if (kind == direct || (how & after_puts) != 0) {
        const Ballot gaps = ~(here >> (from << shift));
        acquire(c, from, at, gaps == 0 || first_of(gaps) > 1u << shift ? 1u << shift : first_of(gaps),
                c.lanes + (from << lane_shift) + (static_cast<std::uint32_t>(at) & mask));
      }
      if (wants_status) c.status = status_of(Notification{what, how});
      if (!is_moved)
        c.found = Found{from, lines, at, Notification{what, how}};
      else
        leave_entry(c, from, at + lines, left);
    }
    if (!is_moved) return Step::move;
    if (--left == 0) return Step::over;
    if (process == from) head += lines;
    sync_warp(warp);
  }
}

/// The team: moves the data of c.found; it meets when they are in the window.
MPIX_DEV_FN void move_found(Ctx& c, const Team& team) {
  const std::uint64_t how = c.found.notification.how, first = c.found.at + entry_lines;
  const std::uint32_t words = data_lines(bytes_of(how)), shift = c.p.lane_shift, mask = (1u << shift) - 1;
  const Line* const lane = c.lanes + (c.found.process << shift);
  const OwnPart& part = own_part(c, window_of(c.found.notification.what));
  auto* const to = reinterpret_cast<std::uint64_t*>(part.base + displacement_of(how));
  MPIX_NO_UNROLL
  for (std::uint32_t i = team.index; i < words; i += team.size) {
    const std::uint64_t n = first + i;
    const Line* const line = lane + (static_cast<std::uint32_t>(n) & mask);
    const auto lap = static_cast<std::uint32_t>(n >> shift) + 1;
    std::uint64_t word = 0;
    for (std::uint32_t looks = 1; !line_arrived(line, lap, &word); ++looks)
      if (looks % looks_between_notes == 0 && load_relaxed(c.p.released) != 0) break;
    to[i] = word;
  }
  sync_team(team);
}

/// The team: takes c.found, which is what the wait asks for.
MPIX_DEV_CALL void take_by_team(Ctx& c) {
  const Team team = team_of(c);
  move_found(c, team);
  if (team.index == 0) leave_lane(c, c.found.process, c.found.at + c.found.lines);
}

/// The team: c.found joins those that are pending. False: it is none that is as usual.
MPIX_DEV_CALL bool set_found_aside(Ctx& c) {
  const Team team = team_of(c);
  const std::uint64_t what = c.found.notification.what, how = c.found.notification.how, bytes = bytes_of(how);
  const std::uint32_t kind = kind_of(how);
  if (kind == flushing || c.state.end >= c.p.most_pending) return false;
  if (kind == in_lines) {
    const OwnPart& part = own_part(c, window_of(what));
    if (part.window != static_cast<std::int32_t>(window_of(what)) || part.present <= displacement_of(how) + bytes ||
        ((reinterpret_cast<std::uintptr_t>(part.base + displacement_of(how)) | bytes) & 7) != 0)
      return false;
    move_found(c, team);
  } else {
    sync_team(team);  // all have read what the first thread changes
  }
  if (team.index != 0) return true;
  const Line* const entry = c.lanes + (c.found.process << c.p.lane_shift) + index_of(c, c.found.at);
  if (kind == direct || (how & after_puts) != 0) acquire_entry(entry);
  pending_of(c, c.inbox)[c.state.end] = as_pending(what, how);
  ++c.state.end;
  ++c.state.live;
  leave_lane(c, c.found.process, c.found.at + c.found.lines);
  return true;
}

/// The team: takes what is asked for of what is pending. How many are still needed.
MPIX_DEV_CALL int take_older(Ctx& c, const Query query, bool wants_status, int needs) {
  const Team team = team_of(c);
  sync_team(team);
  if (team.index == 0) {
    c.query = query;
    c.needs = static_cast<std::uint32_t>(needs);
    c.wants_status = wants_status;
  }
  sync_team(team);
  if (in_first_warp(team)) take_pending(c);
  sync_team(team);
  return static_cast<int>(c.needs);
}
#endif

MPIX_DEV_CALL Result wait_in_any_case(Ctx& c, int window, int source, int tag, int left, int count, Status* status) {
  const Team team = team_of(c);
  sync_team(team);
  const Result wrong = check_query(c, DevCall::wait, window, source, tag, left);
  if (wrong != Result::ok) return wrong;
  ask(c, team, DevCall::wait, window, source, tag, left, true, status != nullptr);
  if (team.index == 0) c.total = static_cast<std::uint32_t>(count);
  const Result result = read(c, team);
  if (status) *status = c.status;
  if (result == Result::ok) return result;
  sync_team(team);
  if (team.index == 0 && result == Result::synchronization) give_up(c, result);
  sync_team(team);
  return fail(c, DevCall::wait, result, window, source, tag, count);
}

/// `status`: of the last one; null: nobody wants to know.
MPIX_DEV_CALL Result wait(Ctx& c, int window, int source, int tag, int count, Status* status) {
  int left = count;
#if MPIX_ON_DEVICE
  const Team team = team_of(c);
  sync_team(team);
  for (bool no_older = false;; sync_team(team)) {
    if (!is_usual(c, team, window, source, tag, left, no_older)) {
      if (no_older || c.state.live == 0 || !is_usual(c, team, window, source, tag, left, true)) break;
      left = take_older(c, Query{window, source, tag}, status != nullptr, left);
    } else {
      if (in_first_warp(team)) {
        auto needs = static_cast<std::uint32_t>(left);
        const Step step = take_as_usual(c, first_warp_of(team), Query{window, source, tag}, status != nullptr, needs);
        if (team.index == 0) {
          c.step = step;
          c.needs = needs;
        }
      }
      sync_team(team);
      const Step step = c.step;
      left = static_cast<int>(c.needs);
      if (step != Step::over) {
        if (step == Step::unusual || (step == Step::set_aside && !set_found_aside(c))) break;
        if (step == Step::move) take_by_team(c), --left;
      }
    }
    no_older = true;
    if (left == 0) {
      if (status) *status = c.status;
      return Result::ok;
    }
  }
#endif
  return wait_in_any_case(c, window, source, tag, left, count, status);
}

/// First warp: how many of the pending match, those that are needed at most.
MPIX_DEV_FN std::uint32_t count_pending(const Ctx& c, const Workers& warp) {
  const Notification* const pending = pending_of(c, c.reading);
  std::uint32_t count = 0;
  for (std::uint32_t from = c.state.first; from < c.state.end && count < c.needs; from += warp.size) {
    const std::uint32_t i = from + warp.index;
    count += count_of(ballot(warp, i < c.state.end && matches(pending[i].what, c.query)));
  }
  return count;
}

MPIX_DEV_CALL Result test(Ctx& c, int window, int source, int tag, int count, int* flag, Status* status) {
  const Team team = team_of(c);
  sync_team(team);
  *flag = 0;
  const Result wrong = check_query(c, DevCall::test, window, source, tag, count);
  if (wrong != Result::ok) return wrong;
  ask(c, team, DevCall::test, window, source, tag, count, false, status != nullptr);
  const Result result = read(c, team);  // memory: some have no place, and are not looked at
  if (in_first_warp(team)) {
    const Workers warp = first_warp_of(team);
    const bool has = count_pending(c, warp) >= c.needs;
    sync_warp(warp);
    if (has && c.needs > 0) take_pending(c);
    if (warp.index == 0) c.value = has;
  }
  sync_team(team);
  *flag = static_cast<int>(c.value);
  if (status && c.value) *status = c.status;
  return result == Result::ok || c.value ? Result::ok : fail(c, DevCall::test, result, window, source, tag, count);
}

}  // namespace dev
}  // namespace mpix
