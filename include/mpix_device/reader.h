// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "team.h"

/// What a rank does with notifications: looks at its lanes, moves the data that came in lines into windows, and hands
/// out what was asked for, in the order of arrival; the rest is pending.
///
/// The first warp of the team looks, alone; the others wait at the team's barrier, so that other ranks of the
/// multiprocessor compute. It comes back to the team (Step) when the call is over, or to move data by all threads.
///
/// | call    | asks | stays | until |
/// |---------|------|-------|-------|
/// | wait    | yes  | yes   | it has all that it asked for |
/// | test    | no, then of what is pending | no | the lanes are empty |
/// | others, while they wait for something else | no | no | the lanes are empty |
namespace mpix {
namespace dev {

/// So much data the first warp moves by itself.
constexpr std::uint32_t most_bytes_of_warp = 1024;

MPIX_DEV_FN Status status_of(const Notification& one) {
  return Status{static_cast<std::int32_t>(source_of(one.what)), static_cast<std::int32_t>(tag_of(one.what)),
                static_cast<std::int32_t>(window_of(one.what)), kind_of(one.how), bytes_of(one.how)};
}

/// What the first warp knows while it looks: each of its threads the same, in registers, as every look into the context
/// takes as long as some ten instructions.
struct Reader {
  Inbox* inbox;
  Line* lanes;
  Notification* pending;
  std::uint32_t processes, lane_shift, most_pending;
  std::uint32_t rank;    ///< whose inbox it is
  const Line* far_lane;  ///< null: there is none
  std::uint32_t needs;
  bool asks, stays;
  Query query;
  Reading state;
  Found found;
  Notification last;  ///< that was handed out

  MPIX_DEV_METHOD explicit Reader(const Ctx& c)
      : inbox(c.reading),
        lanes(lane_of(c, reinterpret_cast<char*>(c.reading), 0)),
        pending(pending_of(c, c.reading)),
        processes(c.p.processes),
        lane_shift(c.p.lane_shift),
        most_pending(c.p.most_pending),
        rank(c.reading_of),
        far_lane(c.p.far_ranks && c.reading == c.inbox ? far_rank(c).lines : nullptr),
        needs(c.needs),
        asks(c.asks),
        stays(c.stays),
        query(c.query),
        state(c.state),
        found(c.found),
        last{dead, 0} {}
  /// One thread, at the end.
  MPIX_DEV_METHOD void tell(Ctx& c) const {
    c.needs = needs;
    c.state = state;
    if (c.step == Step::move) c.found = found;
    if (c.wants_status && last.what != dead) c.status = status_of(last);
  }

  MPIX_DEV_METHOD const Line* line(std::uint32_t process, std::uint64_t n) const {
    return lanes + ((std::uint64_t{process} << lane_shift) + (n & ((std::uint64_t{1} << lane_shift) - 1)));
  }
  /// Of what was found.
  MPIX_DEV_METHOD const Line* entry() const {
    return found.process < processes ? line(found.process, found.at) : far_lane + (found.at & (far_lane_lines - 1));
  }
  MPIX_DEV_METHOD std::uint32_t lap(std::uint64_t n) const { return lap_of_line(n, lane_shift); }
  MPIX_DEV_METHOD bool has_room() const { return state.live < most_pending; }
  MPIX_DEV_METHOD bool is_asked_for(std::uint64_t what) const { return asks && needs > 0 && matches(what, query); }
  /// There is a place for it: with who asks, among the pending, or it takes none.
  MPIX_DEV_METHOD bool fits(const std::uint64_t data[2]) const {
    return has_room() || is_asked_for(data[0]) || kind_of(data[1]) == flushing;
  }
  MPIX_DEV_METHOD std::uint32_t after(std::uint32_t process) const {
    return process + 1 >= processes ? 0 : process + 1;
  }
  /// From the thread that has seen it, to all.
  MPIX_DEV_METHOD void note_found(const Workers& warp, std::uint32_t thread, std::uint32_t process, std::uint64_t at,
                                  const std::uint64_t data[2]) {
    found.process = from_thread(warp, process, thread);
    found.at = from_thread(warp, at, thread);
    found.notification.what = from_thread(warp, data[0], thread);
    found.notification.how = from_thread(warp, data[1], thread);
    found.lines = lines_of(found.notification.how);
    state.turn = after(found.process);
  }
};

enum class Look : std::uint32_t { nothing, found, no_place };

/// What is looked at by many ranks that wait for long takes memory's time from those that compute: so only the entries
/// are, from here on.
constexpr std::uint32_t wide_looks = 12;

/// First warp. What lies at the front of some lane, in turns, and has a place, with who asks or among the pending.
MPIX_DEV_FN Look look(Reader& r, const Workers& warp) {
  const bool room = r.has_room();
  bool no_place = false;
  for (std::uint32_t before = 0; before < r.processes; before += warp.size) {
    const std::uint32_t process = (before + warp.index + r.state.turn) % r.processes;
    std::uint64_t data[2] = {0, 0};
    std::uint64_t at = 0;
    bool here = false;
    if (before + warp.index < r.processes) {
      at = heads_of(r.inbox)[process];
      here = lines_arrived(r.line(process, at), r.lap(at), data) == 3;
    }
    const bool fits = here && r.fits(data);
    const Ballot who = ballot(warp, fits);
    if (!room && ballot(warp, here && !fits) != 0) no_place = true;
    if (who == 0) continue;
    r.note_found(warp, first_of(who), process, at, data);
    return Look::found;
  }
  return no_place ? Look::no_place : Look::nothing;
}

/// First warp: the same, of what comes from other nodes. That lane lies in memory of the host.
MPIX_DEV_FN Look look_far(Reader& r, const Workers& warp) {
  std::uint64_t data[2] = {0, 0};
  std::uint64_t at = 0;
  bool here = false;
  if (warp.index == 0) {
    at = heads_of(r.inbox)[r.processes];
    here = lines_arrived(r.far_lane + (at & (far_lane_lines - 1)), lap_of_line(at, far_lane_shift), data) == 3;
  }
  const bool fits = here && r.fits(data);
  if (ballot(warp, fits) != 0) {
    r.note_found(warp, 0, r.processes, at, data);
    return Look::found;
  }
  return ballot(warp, here) != 0 ? Look::no_place : Look::nothing;
}
/// How seldom: a look there takes a GPU a trip over PCIe.
constexpr std::uint32_t looks_between_far = MPIX_ON_DEVICE ? 2 : 1;

#if MPIX_ON_DEVICE
/// Where few processes are, several threads look at each lane, at two lines each: the entry, and the data behind it,
/// which have come by then as a rule. So that takes one trip to memory.
struct Front {
  std::uint32_t shift;    ///< of the threads of each lane
  std::uint32_t process;  ///< whose lane the thread looks at; too large: none
  std::uint32_t pair;     ///< of lines behind the first of the entry
  std::uint32_t arrived;
  std::uint64_t head;  ///< of that lane
  std::uint64_t data[2];
};

/// 0: there are too many lanes.
MPIX_DEV_FN std::uint32_t front_shift(std::uint32_t processes) {
  if (processes > warp_width() / 2) return 0;
  std::uint32_t lanes = 1, shift = warp_width() == 64 ? 6 : 5;
  while (lanes < processes) lanes *= 2, --shift;
  return shift;
}

MPIX_DEV_FN bool stand_in_front(const Reader& r, const Workers& warp, Front& front) {
  front.shift = warp.size == warp_width() ? front_shift(r.processes) : 0;
  if (front.shift == 0) return false;
  front.process = warp.index >> front.shift;
  front.pair = warp.index & ((1u << front.shift) - 1);
  front.head = front.process < r.processes ? heads_of(r.inbox)[front.process] : 0;
  return true;
}

/// `wide`: at the data as well.
MPIX_DEV_FN Look look_wide(Reader& r, const Workers& warp, Front& front, bool wide) {
  const bool room = r.has_room();
  front.arrived = 0;
  if (front.process < r.processes && (wide || front.pair == 0)) {
    const std::uint64_t n = front.head + 2 * front.pair;
    front.arrived = lines_arrived(r.line(front.process, n), r.lap(n), front.data);
  }
  const bool here = front.pair == 0 && front.arrived == 3;
  const bool fits = here && r.fits(front.data);
  const Ballot all = ballot(warp, fits);
  if (all == 0) return !room && ballot(warp, here) != 0 ? Look::no_place : Look::nothing;
  // In turns, from that process on.
  const Ballot later = all & ~((Ballot{1} << (r.state.turn << front.shift)) - 1);
  r.note_found(warp, first_of(later != 0 ? later : all), front.process, front.head, front.data);
  return Look::found;
}

/// Moves the data of what was found, if all of them have come already. False: not all have.
MPIX_DEV_FN bool move_seen(const Ctx& c, const Reader& r, const Workers& warp, const Front& front) {
  const std::uint64_t how = r.found.notification.how;
  const std::uint64_t bytes = bytes_of(how);
  const std::uint32_t words = data_lines(bytes), pairs = (words + 1) / 2;
  if (pairs >= 1u << front.shift) return false;
  const bool mine = front.process == r.found.process && front.pair >= 1 && front.pair <= pairs;
  const std::uint32_t word = 2 * (front.pair - 1), size = static_cast<std::uint32_t>(bytes);
  const std::uint32_t wanted = word + 1 < words ? 3 : 1;
  if (ballot(warp, mine && (front.arrived & wanted) != wanted) != 0) return false;
  if (!mine) return true;
  const WindowEntry window = *window_entry(c, c.p.segment, window_of(r.found.notification.what), r.rank);
  if (window.present <= displacement_of(how) + bytes) return true;
  char* const to = window.base + displacement_of(how);
  store_some(to, word, size, front.data[0]);
  if (wanted == 3) store_some(to, word + 1, size, front.data[1]);
  return true;
}
MPIX_DEV_FN void step_forward(Front& front, const Found& found) {
  if (front.process == found.process) front.head += found.lines;
}
#else
struct Front {};
MPIX_DEV_FN bool stand_in_front(const Reader&, const Workers&, Front&) { return false; }
MPIX_DEV_FN Look look_wide(Reader&, const Workers&, Front&, bool) { return Look::nothing; }
MPIX_DEV_FN bool move_seen(const Ctx&, const Reader&, const Workers&, const Front&) { return false; }
MPIX_DEV_FN void step_forward(Front&, const Found&) {}
#endif

/// Those of `workers` move the data of `found` into the window.
MPIX_DEV_CALL void move_data(Ctx& c, const Found& found, const Workers& workers) {
  const std::uint64_t how = found.notification.how;
  const std::uint64_t bytes = bytes_of(how);
  const WindowEntry window = *window_entry(c, c.p.segment, window_of(found.notification.what), c.reading_of);
  // A window that has gone meanwhile takes nothing.
  const bool fits = window.present > displacement_of(how) + bytes;
  char* const to = window.base + displacement_of(how);
  const Line* const lane = lane_of(c, reinterpret_cast<char*>(c.reading), found.process);
  for (std::uint32_t i = workers.index; i < data_lines(bytes); i += workers.size) {
    const std::uint64_t n = found.at + entry_lines + i;
    std::uint64_t word = 0;
    std::uint32_t looks = 0;
    while (!line_arrived(lane + index_of(c, n), lap_of(c, n), &word)) {
      ++looks;
#if MPIX_ON_DEVICE
      doze(looks);
      if (looks % looks_between_notes != 0) continue;
      note_waiting(c, c.needs);
      if (load_relaxed(c.p.released) != 0) return;
#else
      if (looks > 64 && !c.p.hooks->pause(c.p.waiter, Sleep::for_room)) return;
#endif
    }
#if MPIX_ON_DEVICE
    if (looks >= looks_between_notes) store_after_loads(&c.p.notes[c.rank - c.p.first_rank].waits, 0);
#else
    if (looks > 64) c.p.hooks->refresh(c.p.waiter);
#endif
    if (fits) store_word(to, i, bytes, word);
  }
}

// These work in the context: what a reader has in registers must not be passed to calls, or it lies on the stack.

/// First warp. Removes the gaps between pending notifications.
MPIX_DEV_CALL void compact(Ctx& c) {
  const Workers warp = first_warp_of(team_of(c));
  Notification* const pending = pending_of(c, c.reading);
  const std::uint32_t end = c.state.end;
  std::uint32_t to = 0;
  for (std::uint32_t from = c.state.first; from < end; from += warp.size) {
    const std::uint32_t i = from + warp.index;
    Notification one{dead, 0};
    if (i < end) one = pending[i];
    const Ballot alive = ballot(warp, one.what != dead);
    sync_warp(warp);  // all have read
    if (one.what != dead) pending[to + count_of(alive & ((Ballot{1} << warp.index) - 1))] = one;
    to += count_of(alive);
    sync_warp(warp);
  }
  if (warp.index == 0) {
    c.state.first = 0;
    c.state.end = to;
  }
  sync_warp(warp);
}

/// First warp. Takes what is asked for from what is pending, oldest first.
MPIX_DEV_CALL void take_pending(Ctx& c) {
  const Workers warp = first_warp_of(team_of(c));
  Notification* const pending = pending_of(c, c.reading);
  const std::uint32_t first = c.state.first, end = c.state.end;
  const Query query = c.query;
  std::uint32_t needs = c.needs, taken = 0;
  Notification last{dead, 0};
  for (std::uint32_t from = first; from < end && needs > 0; from += warp.size) {
    const std::uint32_t i = from + warp.index;
    Notification one{dead, 0};
    if (i < end) one = pending[i];
    const bool match = matches(one.what, query);
    Ballot all = ballot(warp, match);
    if (all == 0) continue;
    const std::uint32_t count = count_of(all), most = count < needs ? count : needs;
    if (match && count_of(all & ((Ballot{1} << warp.index) - 1)) < most) pending[i].what = dead;
    // The last that is handed out.
    for (std::uint32_t skip = 1; skip < most; ++skip) all &= all - 1;
    last.what = from_thread(warp, one.what, first_of(all));
    last.how = from_thread(warp, one.how, first_of(all));
    needs -= most;
    taken += most;
  }
  if (taken == 0) return;
  sync_warp(warp);
  // Those at the front leave for good.
  std::uint32_t begin = first;
  while (begin < end) {
    const std::uint32_t i = begin + warp.index;
    const Ballot alive = ballot(warp, i < end && pending[i].what != dead);
    if (alive != 0) {
      begin += first_of(alive);
      break;
    }
    begin += warp.size;
  }
  if (warp.index == 0) {
    c.needs = needs;
    c.state.live -= taken;
    c.state.first = begin < end ? begin : 0;
    if (begin >= end) c.state.end = 0;
    if (c.wants_status) c.status = status_of(last);
  }
  sync_warp(warp);
}

/// First warp. The data of `found` are where they belong: hand it out or set it aside, and give its lines back.
MPIX_DEV_FN void settle(Ctx& c, Reader& r, const Workers& warp) {
  const Notification& one = r.found.notification;
  const bool flushes = kind_of(one.how) == flushing;
  const bool asked_for = !flushes && r.is_asked_for(one.what);
  const bool set_aside = !flushes && !asked_for;
  if (set_aside && r.state.end == r.most_pending) {
    if (warp.index == 0) c.state = r.state;
    sync_warp(warp);
    compact(c);
    r.state = c.state;
  }
  if (warp.index == 0) {
    const std::uint64_t head = r.found.at + r.found.lines;
    heads_of(r.inbox)[r.found.process] = head;
    if (r.inbox == c.inbox && r.found.process < most_fronts) c.heads[r.found.process] = head;
    if (flushes) fence_stores();  // what came before is in the window, for all
    if (r.found.process < r.processes)
      store_after_loads(room_of(c, r.found.process, r.rank), head + (std::uint64_t{1} << r.lane_shift));
    else
      store_after_loads(&far_rank(c).lines_read, head);
    if (set_aside) r.pending[r.state.end] = as_pending(one.what, one.how);
  }
  if (!flushes) ++r.state.taken;
  if (asked_for) {
    --r.needs;
    r.last = one;
  }
  if (set_aside) {
    ++r.state.end;
    ++r.state.live;
  }
}

/// One thread: what lay there has been taken, of the rank's own.
MPIX_DEV_FN void leave_lane(Ctx& c, std::uint32_t process, std::uint64_t head) {
  // All that is read, and then what is written: so the reads do not wait for each other.
  const bool same = c.left_process == process;
  std::uint64_t* room = c.left_room;
  const std::uint64_t taken = c.state.taken;
  const std::uint32_t processes = c.p.processes, lines = c.p.lane_lines;
  std::uint64_t* const heads = heads_of(c.inbox);
  if (!same) {
    room = room_of(c, process, c.rank);
    c.left_process = process;
    c.left_room = room;
  }
  store_after_loads(room, head + lines);
  heads[process] = head;
  if (process < most_fronts) c.heads[process] = head;
  c.state.taken = taken + 1;
  c.state.turn = process + 1 == processes ? 0 : process + 1;
}
/// One thread: what the last wait has taken is left when the rank next looks into its lanes, as nobody waits for that.
MPIX_DEV_FN void leave_owed(Ctx& c) {
  if (!c.owed.any) return;
  c.owed.any = false;
  leave_lane(c, c.owed.process, c.owed.head);
}

/// First warp: go on until the call is over, or data are to be moved by the team.
MPIX_DEV_CALL void advance(Ctx& c) {
  const Team team = team_of(c);
  const Workers warp = first_warp_of(team);
  const bool alone = team.size == warp.size;
  const bool moved = c.step == Step::move;
  if (warp.index == 0 && c.reading == c.inbox) leave_owed(c);
  sync_warp(warp);
  if (!moved && c.asks && c.state.live > 0) take_pending(c);
  Reader r(c);
  sync_warp(warp);
  if (moved) {
    if ((r.found.notification.how & after_puts) != 0 && warp.index == 0) acquire_entry(r.entry());
    sync_warp(warp);
    settle(c, r, warp);
    sync_warp(warp);
  }
  Front front;
  const bool wide = stand_in_front(r, warp, front);
  Wait wait;
  Step step = Step::over;
  Result result = Result::ok;
  while (!r.asks || r.needs > 0) {
    Look seen = wide ? look_wide(r, warp, front, wait.looks < wide_looks) : look(r, warp);
    if (seen == Look::nothing && r.far_lane && (!r.stays || wait.looks % looks_between_far == 0))
      seen = look_far(r, warp);
    if (seen == Look::no_place) result = Result::memory;
    if (seen == Look::no_place || (seen == Look::nothing && !r.stays)) break;
    if (seen == Look::nothing) {
      if (look_again(c, wait, warp, r.needs, Sleep::for_notifications)) continue;
      result = Result::synchronization;
      break;
    }
    const std::uint64_t how = r.found.notification.how;
    if (kind_of(how) == in_lines) {
      if (!wide || !move_seen(c, r, warp, front)) {
        if (bytes_of(how) > most_bytes_of_warp && !alone) {
          step = Step::move;
          break;
        }
        const Found there = r.found;  // a copy, so that the rest stays in registers
        move_data(c, there, warp);
      }
    }
    if ((kind_of(how) == direct || (how & after_puts) != 0) && warp.index == 0) acquire_entry(r.entry());
    sync_warp(warp);
    settle(c, r, warp);
    step_forward(front, r.found);
    sync_warp(warp);
  }
  end_wait(c, wait, warp);
  if (warp.index == 0) {
    c.step = step;
    c.result = result;
    r.tell(c);
  }
  sync_warp(warp);
}

/// The team: advance() to its end.
MPIX_DEV_FN Result read(Ctx& c, const Team& team) {
  while (true) {
    if (in_first_warp(team)) advance(c);
    sync_team(team);
    if (c.step == Step::over) return c.result;
    move_data(c, c.found, team);
    sync_team(team);
  }
}

/// The team: set aside all that lies in the lanes, as far as there is room.
MPIX_DEV_CALL void collect(Ctx& c) {
  const Team team = team_of(c);
  sync_team(team);
  if (team.index == 0) {
    c.asks = c.stays = false;
    c.step = Step::over;
  }
  sync_team(team);
  (void)read(c, team);
}

/// One thread.
MPIX_DEV_FN void know_own_part(Ctx& c, std::uint32_t window) {
  const WindowEntry entry = *window_entry(c, c.p.segment, window, c.rank);
  own_part(c, window) = OwnPart{static_cast<std::int32_t>(window), entry.base, entry.present};
}

MPIX_DEV_FN Result check_query(Ctx& c, DevCall call, std::int64_t window, std::int64_t source, std::int64_t tag,
                               std::int64_t count) {
  Result wrong = c.broken;
  if (wrong != Result::ok) return wrong;
  if (window < -1 || window >= most_windows ||
      (window >= 0 && window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), c.rank)->present == 0))
    wrong = Result::window;
  else if (source < -1 || source >= c.p.ranks)
    wrong = Result::rank;
  else if (tag < -1)
    wrong = Result::tag;
  else if (count < 0)
    wrong = Result::count;
  if (wrong != Result::ok)
    (void)fail(c, call, wrong, static_cast<std::int32_t>(window), static_cast<std::int32_t>(source), tag, count);
  else if (window >= 0 && is_first(c))
    know_own_part(c, static_cast<std::uint32_t>(window));
  return wrong;
}

}  // namespace dev
}  // namespace mpix
