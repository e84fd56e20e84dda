// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "put.h"

/// Flush, barrier, windows; the first call of a rank, and the last. All threads of the team call, with the same
/// arguments. layout.h has the words and their order.
namespace mpix {
namespace dev {

/// Until `target` has taken all that this rank has sent so far.
MPIX_DEV_FN bool wait_for_taken(Ctx& c, const Team& team, std::uint32_t target) {
  Aim& aim = c.aims[aims];
  sync_team(team);
  const bool is_its_target = aim.target == static_cast<std::int32_t>(target);
  sync_team(team);
  if (team.index == 0 && !is_its_target) take_aim(c, aim, target);
  sync_team(team);
  if (send(c, aim, what_of(0, c.rank, 0), how_of(flushing, 0), nullptr) != Result::ok) return false;
  std::uint64_t* const room = aim.room;
  // Of the first thread: up to what the process has sent by now, which is not less.
  const std::uint64_t enough = team.index == 0 ? load_relaxed(aim.sent) + c.p.lane_lines : 0;
  return until(
      c, DevCall::flush, Sleep::for_room, [&] { return load_before_stores(room) >= enough; },
      [&] { read_for(c, target); });
}

/// All that this rank has put in this launch is at its targets.
MPIX_DEV_CALL Result flush(Ctx& c, int window) {
  const Team team = team_of(c);
  const Result wrong = check_query(c, DevCall::flush, window, -1, -1, 0);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  if (team.index == 0) {
    fence_stores();
    c.unfenced = 0;
    c.query = Query{window, -1, -1};
    c.needs = c.total = 0;
    ++c.waits;
  }
  sync_team(team);
  const std::uint32_t count = c.unflushed_count;
  bool whole = true;
  if (count <= most_unflushed) {
    for (std::uint32_t i = 0; whole && i < count; ++i) whole = wait_for_taken(c, team, c.unflushed[i]);
  } else {
    for (std::uint32_t target = 0; whole && target < c.p.ranks; ++target) {
      sync_team(team);
      if (team.index == 0) c.value = is_far(c, target) ? 0 : load_relaxed(sent_to(c, target));
      sync_team(team);
      const bool none = c.value == 0;
      sync_team(team);
      whole = none || wait_for_taken(c, team, target);
    }
  }
  whole = whole && flush_far(c);
  sync_team(team);
  if (!whole) return fail(c, DevCall::flush, Result::synchronization, window, -1, 0, 0);
  if (team.index == 0) {
    fence_acquire();
    c.unflushed_count = 0;
    for (Aim& aim : c.aims) aim.is_noted = false;
  }
  sync_team(team);
  return Result::ok;
}

/// First thread. The last rank of a process to arrive meets those of the others.
MPIX_DEV_FN bool barrier_is_over(Ctx& c, Comm comm, std::uint64_t number, bool last) {
  Header& own = header_of(c.p.segment);
  if (!last) return load_acquire(&own.go[comm]) >= number;
  for (std::uint32_t process = 0; process < c.p.processes; ++process)
    if (load_before_stores(there_of(c, c.p.segment, comm, process)) < number) return false;
  if (comm == world && c.p.far_words && load_before_stores(&c.p.far_words->go) < number) return false;
  fence_acquire();
  store_after_loads(&own.go[comm], number);  // the fence holds for it, too
  ring_process(c, c.p.segment);
  return true;
}

/// Of the last that the rank has come to, of all ranks.
MPIX_DEV_FN std::uint64_t number_of_barrier(const Ctx& c) { return c.inbox->barriers[world]; }

constexpr std::uint32_t most_barrier_looks = 64;

MPIX_DEV_CALL Result barrier(Ctx& c, Comm comm) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
  if (comm >= comms) return fail(c, DevCall::barrier, Result::group, -1, -1);
  // Others may read it by their own way to the target: so it is there before anybody hears that this rank has come.
  if (comm != device && c.far_put != 0 && !flush_far(c))
    return fail(c, DevCall::barrier, Result::synchronization, -1, -1);
  std::uint64_t number = 0;
  bool last = false;
  if (is_first(c)) {
    c.query = Query{-1, -1, static_cast<std::int32_t>(comm)};  // for the report
    c.needs = c.total = 0;
    ++c.waits;
    // The last to arrive fences for those of other GPUs: that holds for what it has seen others to have stored, too.
    fence_on_device();
    number = ++c.inbox->barriers[comm];
    last = fetch_add_on_device(&header_of(c.p.segment).arrived[comm], 1) + 1 == number * c.p.ranks_here;
    const bool alone = comm == device || (c.p.processes == 1 && !(comm == world && c.p.far_words));
    if (last && alone) {
      fence_on_device();
      store_after_loads(&header_of(c.p.segment).go[comm], number);
      ring_process(c, c.p.segment);
      last = false;
    }
    if (last) {
      fence_stores();
      const std::uint32_t first = comm == device ? c.p.process : 0;
      const std::uint32_t end = comm == device ? c.p.process + 1 : c.p.processes;
      for (std::uint32_t process = first; process < end; ++process) {
        char* const segment = process == c.p.process ? c.p.segment : c.p.segments[process];
        store_after_loads(there_of(c, segment, comm, c.p.process), number);
        ring_process(c, segment);
      }
    }
    c.value = last;
  }
  if (comm == world && c.p.far_words) {
    sync_team(c);
    const bool tells = c.value != 0;
    sync_team(c);
    if (tells && !post_far(c, DevCall::barrier, TaskKind::far_barrier, 0, number_of_barrier(c), 0, 0, 0, 0))
      return fail(c, DevCall::barrier, Result::synchronization, -1, -1);
  }
  bool over = false;
#if MPIX_ON_DEVICE
  // As a rule that is soon: one thread looks, and reads no lanes.
  if (is_first(c)) {
    for (std::uint32_t looks = 0; !over && looks < most_barrier_looks; ++looks)
      over = barrier_is_over(c, comm, number, last);
    c.value = over;
  }
  sync_team(c);
  over = c.value != 0;
  sync_team(c);
#endif
  over = over || until(c, DevCall::barrier, Sleep::for_barrier, [&] { return barrier_is_over(c, comm, number, last); });
  sync_team(c);
  if (!over) return fail(c, DevCall::barrier, Result::synchronization, -1, -1);
  if (is_first(c)) {
    if (comm == world) c.has_put = c.unfenced = 0;
  }
  sync_team(c);
  return Result::ok;
}

/// One thread: on(segment) of each process that knows windows of the group.
template <class On>
MPIX_DEV_FN void in_segments(const Ctx& c, Comm comm, On on) {
  for (std::uint32_t process = 0; process < c.p.processes; ++process)
    if (comm != device || process == c.p.process) on(process == c.p.process ? c.p.segment : c.p.segments[process]);
}

/// One thread: this rank's part of it is gone.
MPIX_DEV_FN void forget_window(Ctx& c, Comm comm, std::uint32_t window) {
  in_segments(c, comm, [&](char* segment) { *window_entry(c, segment, window, c.rank) = WindowEntry{nullptr, 0}; });
  c.inbox->open[comm] &= ~(std::uint64_t{1} << (window % windows_each));
  forget_parts(c);
}

/// Other nodes are told of this rank's part of a window as it stands here; `word`: what the rank does, or 0.
MPIX_DEV_FN bool tell_far_of_window(Ctx& c, DevCall call, std::uint32_t window, std::uint64_t word) {
  if (!c.p.far_words) return true;
  const WindowEntry part = *window_entry(c, c.p.segment, window, c.rank);
  return post_far(c, call, TaskKind::far_window, what_of(0, c.rank, window), 0,
                  reinterpret_cast<std::uintptr_t>(part.base), part.present, word, 0);
}

/// What is wrong where a rank cannot do it.
MPIX_FN Result why_not(WindowAct act) {
  return act == WindowAct::open ? Result::not_attached : act == WindowAct::close ? Result::window : Result::memory;
}

/// Each rank of the group tells the others what it does, and whether it can, and meets them: ok where all do the same,
/// and all can.
MPIX_DEV_CALL Result agree_on_window(Ctx& c, DevCall call, Comm comm, WindowAct act, std::uint32_t window, bool can) {
  const Team team = team_of(c);
  sync_team(team);
  const std::uint64_t number = c.inbox->barriers[comm] + 1, own = window_call(number, act, window);
  const std::uint64_t word = own | (can ? 0 : window_call_fails);
  if (team.index == 0)
    in_segments(c, comm,
                [&](char* segment) { store_after_loads(window_call_of(c, segment, comm, number, c.rank), word); });
  if (comm == world && !tell_far_of_window(c, call, window, word))
    return fail(c, call, Result::synchronization, -1, -1);
  const Result met = barrier(c, comm);
  if (met != Result::ok) return met;
  if (team.index == 0) {
    c.value = 0;
    c.result = Result::ok;
  }
  sync_team(team);
  const std::uint32_t begin = comm == device ? c.p.first_rank : 0;
  const std::uint32_t end = comm == device ? c.p.first_rank + c.p.ranks_here : c.p.ranks;
  for (std::uint32_t rank = begin + team.index; rank < end; rank += team.size) {
    if (comm == node && is_far(c, rank)) continue;
    const std::uint64_t other = load_relaxed(window_call_of(c, c.p.segment, comm, number, rank));
    if (((own ^ other) & ~window_call_fails) != 0)
      c.value = 1;
    else if (other != own)
      c.result = why_not(act);
  }
  sync_team(team);
  const Result result = c.value != 0 ? Result::order : c.result;
  sync_team(team);
  return result;
}

/// All ranks of `comm` open a window over memory that their processes have attached: the next of the comm's numbers.
MPIX_DEV_CALL Result win_open(Ctx& c, Comm comm, void* base, std::size_t bytes, int* window) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
  if (comm >= comms) return fail(c, DevCall::win_open, Result::group, -1, -1, static_cast<std::int64_t>(bytes), 0);
  if (!window) return fail(c, DevCall::win_open, Result::buffer, -1, -1, static_cast<std::int64_t>(bytes), 0);
  if (is_first(c)) {
    std::uint32_t attachment = most_attachments;
    std::uint64_t offset = 0;
    for (std::uint32_t i = 0; i < most_attachments; ++i) {
      const WindowEntry mine = *attached_entry(c, c.p.segment, i, c.p.process);
      if (mine.present == 0) continue;
      const std::uint64_t from = static_cast<std::uint64_t>(static_cast<char*>(base) - mine.base);
      if (from > mine.present - 1 || bytes > mine.present - 1 - from) continue;
      attachment = i;
      offset = from;
      break;
    }
    std::uint32_t number = 0;
    while (number < windows_each && (c.inbox->open[comm] >> number & 1) != 0) ++number;
    c.result = number == windows_each                        ? Result::memory
               : bytes > 0 && attachment == most_attachments ? Result::not_attached
                                                             : Result::ok;
    c.value = first_window_of(comm) + number % windows_each;
    if (c.result == Result::ok) {
      c.inbox->open[comm] |= std::uint64_t{1} << number;
      in_segments(c, comm, [&](char* segment) {
        WindowEntry entry{nullptr, 1};
        if (bytes > 0)
          entry = WindowEntry{attached_entry(c, segment, attachment, c.p.process)->base + offset, bytes + 1};
        *window_entry(c, segment, static_cast<std::uint32_t>(c.value), c.rank) = entry;
      });
    }
  }
  sync_team(c);
  const Result result = c.result;
  const auto number = static_cast<std::uint32_t>(c.value);
  sync_team(c);
  const Result agreed =
      agree_on_window(c, DevCall::win_open, comm, result == Result::memory ? WindowAct::open_none : WindowAct::open,
                      number, result == Result::ok);
  if (agreed == Result::ok) {
    *window = static_cast<int>(number);
    return Result::ok;
  }
  if (c.broken != Result::ok) return agreed;
  if (result == Result::ok) {
    if (is_first(c)) forget_window(c, comm, number);
    sync_team(c);
    if (comm == world) (void)tell_far_of_window(c, DevCall::win_open, number, 0);
  }
  return fail(c, DevCall::win_open, agreed, -1, -1, static_cast<std::int64_t>(bytes), 0);
}

MPIX_DEV_CALL Result win_close(Ctx& c, int window) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
  if (window < static_cast<int>(first_window_of(world)) || window >= static_cast<int>(most_windows))
    return fail(c, DevCall::win_close, Result::window, window, -1);
  const auto number = static_cast<std::uint32_t>(window);
  const auto comm = static_cast<Comm>(number / windows_each - 1);
  const bool is_open = window_entry(c, c.p.segment, number, c.rank)->present != 0;
  // Data that are on their way in lines go into the window: all have put by now, and flush() waits until they are
  // there.
  const Result flushed = is_open ? flush(c, window) : Result::ok;
  if (flushed != Result::ok) return flushed;
  const Result agreed = agree_on_window(c, DevCall::win_close, comm, WindowAct::close, number, is_open);
  if (c.broken != Result::ok) return agreed;
  if (agreed != Result::ok) return fail(c, DevCall::win_close, agreed, window, -1);
  if (is_first(c)) forget_window(c, comm, number);
  sync_team(c);
  if (comm == world && !tell_far_of_window(c, DevCall::win_close, number, 0))
    return fail(c, DevCall::win_close, Result::synchronization, window, -1);
  return Result::ok;
}

/// One line of the log, by the first thread.
MPIX_DEV_CALL void log(Ctx& c, int id, std::int64_t a, std::int64_t b, std::int64_t d) {
  if (!is_first(c) || c.broken == Result::argument || c.broken == Result::other) return;
  const std::uint64_t number = fetch_add_on_device(&header_of(c.p.segment).logged, 1) + 1;
  LogLine& line = c.p.log[number % log_lines];
  const std::int64_t values[3] = {a, b, d};
  store_release(&line.number, 0);
  for (int i = 0; i < 3; ++i)
    store_after_loads(reinterpret_cast<std::uint64_t*>(&line.values[i]), static_cast<std::uint64_t>(values[i]));
  store_after_loads(&line.who, two_words(static_cast<std::uint32_t>(id), c.rank));
  store_release(&line.number, number);
}

/// Null: not a rank of this node, or outside of the window.
MPIX_DEV_FN void* pointer(Ctx& c, int window, int target, std::size_t displacement) {
  if (window < 0 || window >= static_cast<int>(most_windows) || target < 0 ||
      static_cast<std::uint32_t>(target) >= c.p.ranks)
    return nullptr;
  const WindowEntry entry =
      *window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), static_cast<std::uint32_t>(target));
  return entry.base && entry.present - 1 > displacement ? entry.base + displacement : nullptr;
}

/// Waits for the rank's turn are numbered by the launches that have finished, as no other waits are: turns are not
/// taken in the order of the launches, and behind each that ends it is another one that is waited for.
constexpr std::uint64_t wait_for_turn = std::uint64_t{1} << 63;

/// The launch is counted, and the next one of the rank may have its turn.
MPIX_DEV_FN void unlock_inbox(Ctx& c) {
  if (c.p.launch > 0)
    store_release(&c.p.notes[c.rank - c.p.first_rank].finished, c.inbox->finished = c.inbox->finished + 1);
#if !MPIX_ON_DEVICE
  c.p.hooks->refresh(c.p.waiter);  // behind the lock the domain may be freed
#endif
  ring_rank(c, reinterpret_cast<char*>(c.inbox));
  store_release(&c.inbox->lock, 0);
}

/// Somebody may be reading the lanes in this rank's place: not for long; or an earlier launch of the rank goes on, and
/// leaves notes of its own. False: the domain is broken. The launch in front leaves then, as a rule at once, so this
/// one waits a little longer, and is counted, too.
MPIX_DEV_FN bool lock_inbox(Ctx& c) {
  RankNote& own = c.p.notes[c.rank - c.p.first_rank];
  std::uint64_t* const note = &own.waits;
  bool noted = false;
  std::uint32_t looks_in_vain = 0;  // since it is broken
  c.holds_inbox = try_lock(&c.inbox->lock);
  for (std::uint32_t looks = 1; !c.holds_inbox && looks_in_vain < 16;
       c.holds_inbox = try_lock(&c.inbox->lock), ++looks) {
#if MPIX_ON_DEVICE
    doze(looks);
    if (looks % looks_between_notes != 0) continue;
    const bool released = load_relaxed(c.p.released) != 0;
#else
    const bool released = !c.p.hooks->pause(c.p.waiter, Sleep::for_turn);
#endif
    if (released) ++looks_in_vain;
    const std::uint64_t other = load_relaxed(note), wait = wait_for_turn | load_relaxed(&own.finished);
    if (other != 0 && !(noted && other == c.waits && wait != c.waits)) continue;
    c.waits = wait;
    note_waiting(c, 0);
    noted = true;
  }
#if !MPIX_ON_DEVICE
  c.p.hooks->refresh(c.p.waiter);
#endif
  if (noted && load_relaxed(note) == c.waits) store_after_loads(note, 0);
  if (looks_in_vain > 0 && c.holds_inbox) {
    c.holds_inbox = false;
    unlock_inbox(c);
  }
  return looks_in_vain == 0;
}

MPIX_DEV_CALL Result init(Ctx& c, const MPIX_Dev_param& p, std::uint32_t team) {
#if MPIX_ON_DEVICE
  const bool first = team == block_team ? thread_of_block() == 0 : thread_of_block() % warp_width() == 0;
  const std::uint32_t here = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const std::uint32_t grid = gridDim.x * gridDim.y * gridDim.z;
#else
  const bool first = true;
  const std::uint32_t here = p.host_rank, grid = p.hooks ? p.ranks_here : 0;  // 0: not from MPIX_Dev_launch_host
#endif
  if (first) {
    c.p = p;
    c.team = team;
    c.rank = p.first_rank + here;
    c.broken = p.abi != MPIX_DEV_ABI                  ? Result::other
               : grid != p.ranks_here || here >= grid ? Result::argument
                                                      : Result::ok;
    // With another ABI the notes may lie elsewhere.
    if (c.broken == Result::argument && here < p.ranks_here)
      (void)fail(c, DevCall::init, c.broken, -1, -1, grid, p.ranks_here);
    c.at = places(p.ranks, p.processes);
    for (Aim& aim : c.aims) aim.target = -1;
    for (Fenced& fenced : c.fenced) fenced = Fenced{0, 0};
    c.left_process = ~0u;
    c.owed.any = false;
    for (Taken& taken : c.taken) taken.target = -1;
    forget_parts(c);
#if MPIX_ON_DEVICE
    c.front_shift = front_shift(p.processes);
#endif
    c.unfenced = c.has_put = 0;
    c.unflushed_count = 0;
    c.far_freed = c.far_taken = c.far_replies = c.far_flushes = 0;
    c.far_unflushed = c.far_put = 0;
    c.waits = 0;
    c.holds_inbox = false;
    c.call = DevCall::init;
    c.query = Query{-1, -1, -1};
    c.needs = c.total = 0;
    c.asks = c.stays = c.wants_status = false;
    c.step = Step::over;
    if (c.broken == Result::ok) {
      c.inbox = reinterpret_cast<Inbox*>(p.segment + c.at.inboxes + here * p.inbox_bytes);
      c.reading = c.inbox;
      c.reading_of = c.rank;
      c.lanes = lane_of(c, reinterpret_cast<char*>(c.inbox), 0);
      if (lock_inbox(c)) {
        c.waits = c.inbox->waits + 1;  // for those that have no number of their own
        if (p.far_ranks) {
          c.far_replies = load_relaxed(&p.far_ranks[here].replies);
          c.far_flushes = load_relaxed(&p.far_ranks[here].flushed);
        }
        c.state = c.inbox->reading;
        for (std::uint32_t process = 0; process < p.processes && process < most_fronts; ++process)
          c.heads[process] = heads_of(c.inbox)[process];
        c.has_put = static_cast<std::uint32_t>(c.inbox->has_put);
        c.far_unflushed = c.far_put = static_cast<std::uint32_t>(c.inbox->far_put);
      } else {
        c.broken = Result::synchronization;  // and the domain may be gone
      }
    }
    if (c.broken != Result::ok) give_up(c, c.broken);  // there may be no lanes: no wait is as usual
  }
#if MPIX_ON_DEVICE
  if (team == block_team)
    __syncthreads();
  else
    sync_warp(Workers{0, warp_width()});
#endif
  return c.broken;
}

/// The rank's part of this launch is over. What lies in its lanes is taken; what is pending stays for the next launch.
MPIX_DEV_CALL void finish(Ctx& c) {
  sync_team(c);
  if (c.broken == Result::argument || c.broken == Result::other) return;
  if (c.broken == Result::ok) collect(c);
  sync_team(c);
  if (is_first(c) && c.holds_inbox) {
    c.inbox->reading = c.state;
    c.inbox->has_put = c.has_put;
    c.inbox->far_put = c.far_put;
    c.inbox->waits = c.waits;
    unlock_inbox(c);
  }
  if (is_first(c)) give_up(c, Result::argument);  // no call after this one
  sync_team(c);
}

}  // namespace dev
}  // namespace mpix
