// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "reader.h"

/// Put, get, notify, flush, barrier, windows: what ranks do to each other. All threads of the team call, with the same
/// arguments. layout.h has the words and their order.
namespace mpix {
namespace dev {

MPIX_DEV_FN Result check_target(Ctx& c, DevCall call, std::int64_t window, std::int64_t target,
                                std::uint64_t displacement, std::uint64_t bytes, bool no_buffer, std::int64_t tag,
                                WindowEntry* entry) {
  Result wrong = c.broken;
  if (wrong != Result::ok) return wrong;
  if (target < 0 || target >= c.p.ranks) {
    wrong = Result::rank;
  } else if (window < 0 || window >= most_windows) {
    wrong = Result::window;
  } else {
    *entry = *window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), static_cast<std::uint32_t>(target));
    if (entry->present == 0)
      wrong = Result::window;
    else if (tag < 0)
      wrong = Result::tag;
    else if (displacement > entry->present - 1 || bytes > entry->present - 1 - displacement)
      wrong = Result::range;
    else if (no_buffer && bytes > 0)
      wrong = Result::buffer;
  }
  if (wrong != Result::ok)
    (void)fail(c, call, wrong, static_cast<std::int32_t>(window), static_cast<std::int32_t>(target),
               static_cast<std::int64_t>(wrong == Result::tag ? tag : static_cast<std::int64_t>(displacement)),
               static_cast<std::int64_t>(bytes));
  return wrong;
}

/// Read the lanes of `target`, if it runs no kernel.
MPIX_DEV_CALL void read_for(Ctx& c, std::uint32_t target) {
  Inbox* const other = reinterpret_cast<Inbox*>(c.p.inboxes[target]);
  sync_team(c);
  if (is_first(c)) c.value = target != c.rank && load_relaxed(&other->lock) == 0 && try_lock(&other->lock);
  sync_team(c);
  if (c.value == 0) return;
  if (is_first(c)) {
    c.inbox->reading = c.state;
    c.reading = other;
    c.reading_of = target;
    c.state = other->reading;
  }
  collect(c);
  if (is_first(c)) {
    other->reading = c.state;
    c.reading = c.inbox;
    c.reading_of = c.rank;
    c.state = c.inbox->reading;
    store_release(&other->lock, 0);
  }
  sync_team(c);
}

/// A GPU looks more often whether the wait is over than into its lanes.
constexpr std::uint32_t turns_between_reading = MPIX_ON_DEVICE ? 4 : 1;

struct Nothing {
  MPIX_DEV_METHOD void operator()() const {}
};

/// Wait, while lanes are read, until `done` says so to the first thread; `meanwhile`: what else the team does. False:
/// the domain is broken.
template <class Done, class Meanwhile = Nothing>
MPIX_DEV_FN bool until(Ctx& c, DevCall call, Sleep sleep, Done done, Meanwhile meanwhile = {}) {
  const Team team = team_of(c);
  Wait wait;
  for (std::uint32_t turn = 0;; ++turn) {
    sync_team(team);
    if (team.index == 0) {
      c.call = call;
      c.value = done();
    }
    sync_team(team);
    if (c.value != 0) break;
    if (turn % turns_between_reading == turns_between_reading - 1) {
      collect(c);
      meanwhile();
    }
    if (in_first_warp(team)) {
      const bool goes_on = look_again(c, wait, first_warp_of(team), 0, sleep);
      sync_warp(first_warp_of(team));
      if (team.index == 0) c.goes_on = goes_on;
    }
    sync_team(team);
    if (c.goes_on) continue;
    if (team.index == 0) c.broken = Result::synchronization;
    sync_team(team);
    return false;
  }
  if (in_first_warp(team)) end_wait(c, wait, first_warp_of(team));
  return true;
}

MPIX_DEV_CALL bool wait_for_room(Ctx& c, std::uint32_t target, std::uint64_t what, std::uint64_t end) {
  if (is_first(c)) {
    c.query = Query{static_cast<std::int32_t>(window_of(what)), static_cast<std::int32_t>(target),
                    static_cast<std::int32_t>(tag_of(what))};
    c.needs = c.total = 0;
    ++c.waits;
  }
  return until(
      c, DevCall::put_notify, Sleep::for_room,
      [&] { return load_before_stores(room_of(c, c.p.process, target)) >= end; }, [&] { read_for(c, target); });
}

MPIX_DEV_FN void note_unflushed(Ctx& c, std::uint32_t target) {
  MPIX_NO_UNROLL
  for (std::uint32_t i = 0; i < c.unflushed_count && i < most_unflushed; ++i)
    if (c.unflushed[i] == target) return;
  if (c.unflushed_count < most_unflushed) c.unflushed[c.unflushed_count] = target;
  if (c.unflushed_count <= most_unflushed) ++c.unflushed_count;
}

/// The team: an entry for `target`, with data where `how` says so. The team has met since it wrote the data, and meets
/// at the end: the source may be used again, by any thread.
MPIX_DEV_FN Result send(Ctx& c, const Team& team, std::uint32_t target, std::uint64_t what, std::uint64_t how,
                        const char* data) {
  const std::uint32_t lines = lines_of(how);
  const std::uint32_t bytes = kind_of(how) == in_lines ? static_cast<std::uint32_t>(bytes_of(how)) : 0;
  Line* const lane = lane_of(c, c.p.inboxes[target], c.p.process);
  // While the first thread asks for lines. From the last thread on, as the first has the entry to write.
  const std::uint32_t first = team.size - 1 - team.index, count = data_lines(bytes);
  std::uint64_t word = first < count ? load_some(data, first, bytes) : 0;
  if (c.has_put && kind_of(how) != direct) how |= after_puts;
  if (team.index == 0) {
    const std::uint64_t* const room_word = room_of(c, c.p.process, target);
    if (kind_of(how) == direct || c.unfenced) {
      if (is_here(c, target)) {
        fence_on_device();  // others may still be owed one that reaches them
      } else {
        fence_stores();
        c.unfenced = 0;
      }
    }
    const std::uint64_t begin = fetch_add_on_device(sent_to(c, target), lines);
    const std::uint64_t room = load_before_stores(room_word);
    c.found.at = begin;
    c.value = room >= begin + lines;
  }
  const std::uint32_t shift = c.p.lane_shift;
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  sync_team(team);
  const std::uint64_t begin = c.found.at;
  if (c.value == 0 && !wait_for_room(c, target, what, begin + lines)) return Result::synchronization;
  if (team.index == 0) write_entry(lane + (begin & mask), what, how, static_cast<std::uint32_t>(begin >> shift) + 1);
  for (std::uint32_t i = first; i < count; i += team.size) {
    const std::uint64_t n = begin + entry_lines + i;
    if (i != first) word = load_some(data, i, bytes);
    write_line(lane + (n & mask), word, static_cast<std::uint32_t>(n >> shift) + 1);
  }
  if (bytes > 0 && team.index == 0) note_unflushed(c, target);
#if !MPIX_ON_DEVICE
  ring_rank(c, c.p.inboxes[target]);
#endif
  sync_team(team);
  return Result::ok;
}

/// All threads of a team copy, where there is anything to copy.
MPIX_DEV_FN void copy_by(const Team& team, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
#if defined(__CUDA_ARCH__)
  if (!__isGlobal(from) || !__isGlobal(to)) {  // memory of the block, which copy_bytes cannot read
    for (std::size_t i = team.index; i < bytes; i += team.size)
      static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    return;
  }
#endif
  copy_bytes(static_cast<char*>(to), static_cast<const char*>(from), bytes, team);
}

MPIX_DEV_FN Result put(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes, const void* local) {
  const Team team = team_of(c);
  WindowEntry entry{};
  const Result wrong = check_target(c, DevCall::put, window, target, displacement, bytes, local == nullptr, 0, &entry);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  copy_by(team, entry.base + displacement, local, bytes);
  if (team.index == 0) c.unfenced = c.has_put = 1;
  sync_team(team);
  return Result::ok;
}

MPIX_DEV_FN Result get(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes, void* local) {
  const Team team = team_of(c);
  WindowEntry entry{};
  const Result wrong = check_target(c, DevCall::get, window, target, displacement, bytes, local == nullptr, 0, &entry);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  copy_by(team, local, entry.base + displacement, bytes);
  sync_team(team);
  return Result::ok;
}

MPIX_DEV_FN Result put_notify(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                              const void* local, int tag) {
  const Team team = team_of(c);
  WindowEntry entry{};
  const Result wrong =
      check_target(c, DevCall::put_notify, window, target, displacement, bytes, local == nullptr, tag, &entry);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  char* const to = entry.base + displacement;
  const char* const from = static_cast<const char*>(local);
  std::uint64_t how = how_of(direct, bytes);
  if (bytes > 0 && bytes <= c.p.inline_bytes && to != from) {
    how = how_in_lines(bytes, displacement);
  } else {
    copy_by(team, to, from, bytes);
    sync_team(team);
  }
  return send(c, team, static_cast<std::uint32_t>(target), what, how, from);
}

/// A notification without data; it tells of earlier puts.
MPIX_DEV_FN Result notify(Ctx& c, int window, int target, int tag) {
  const Team team = team_of(c);
  WindowEntry entry{};
  const Result wrong = check_target(c, DevCall::notify, window, target, 0, 0, false, tag, &entry);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  return send(c, team, static_cast<std::uint32_t>(target),
              what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)), how_of(direct, 0),
              nullptr);
}

MPIX_DEV_FN Result get_notify(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes, void* local,
                              int tag) {
  const Team team = team_of(c);
  WindowEntry entry{};
  const Result wrong =
      check_target(c, DevCall::get_notify, window, target, displacement, bytes, local == nullptr, tag, &entry);
  sync_team(team);
  if (wrong != Result::ok) return wrong;
  copy_by(team, local, entry.base + displacement, bytes);
  sync_team(team);
  return send(c, team, static_cast<std::uint32_t>(target),
              what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)),
              how_of(was_read, bytes), nullptr);
}

/// Until `target` has taken all that this rank has sent so far.
MPIX_DEV_FN bool wait_for_taken(Ctx& c, const Team& team, std::uint32_t target) {
  if (send(c, team, target, what_of(0, c.rank, 0), how_of(flushing, 0), nullptr) != Result::ok) return false;
  std::uint64_t* const room = room_of(c, c.p.process, target);
  // Of the first thread: up to what the process has sent by now, which is not less.
  const std::uint64_t enough = team.index == 0 ? load_relaxed(sent_to(c, target)) + c.p.lane_lines : 0;
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
      if (team.index == 0) c.value = load_relaxed(sent_to(c, target));
      sync_team(team);
      const bool none = c.value == 0;
      sync_team(team);
      whole = none || wait_for_taken(c, team, target);
    }
  }
  sync_team(team);
  if (!whole) return fail(c, DevCall::flush, Result::synchronization, window, -1, 0, 0);
  if (team.index == 0) {
    fence_acquire();
    c.unflushed_count = 0;
  }
  sync_team(team);
  return Result::ok;
}

/// First thread. The last rank of a process to arrive meets those of the others.
MPIX_DEV_FN bool barrier_is_over(Ctx& c, Comm comm, std::uint64_t number, bool last) {
  Header& own = header_of(c.p.segment);
  if (!last) return load_before_stores(&own.go[comm]) >= number;
  for (std::uint32_t process = 0; process < c.p.processes; ++process)
    if (load_before_stores(there_of(c, c.p.segment, comm, process)) < number) return false;
  fence_acquire();
  store_release(&own.go[comm], number);
  ring_process(c, c.p.segment);
  return true;
}

MPIX_DEV_CALL Result barrier(Ctx& c, Comm comm) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
  std::uint64_t number = 0;
  bool last = false;
  if (is_first(c)) {
    c.query = Query{-1, -1, -1};
    c.needs = c.total = 0;
    ++c.waits;
    c.unfenced = 0;
    fence_stores();
    number = ++c.inbox->barriers[comm];
    last = fetch_add_on_device(&header_of(c.p.segment).arrived[comm], 1) + 1 == number * c.p.ranks_here;
    if (last) {
      fence_stores();
      const std::uint32_t first = comm == world ? 0 : c.p.process;
      const std::uint32_t end = comm == world ? c.p.processes : c.p.process + 1;
      for (std::uint32_t process = first; process < end; ++process) {
        char* const segment = process == c.p.process ? c.p.segment : c.p.segments[process];
        store_after_loads(there_of(c, segment, comm, c.p.process), number);
        ring_process(c, segment);
      }
    }
  }
  const bool over =
      until(c, DevCall::barrier, Sleep::for_barrier, [&] { return barrier_is_over(c, comm, number, last); });
  sync_team(c);
  if (!over) return fail(c, DevCall::barrier, Result::synchronization, -1, -1);
  if (is_first(c)) {
    fence_acquire();
    if (comm == world) c.has_put = 0;
  }
  sync_team(c);
  return Result::ok;
}

/// One thread: this rank's part of it is gone.
MPIX_DEV_FN void forget_window(Ctx& c, Comm comm, std::uint32_t window) {
  for (std::uint32_t process = 0; process < c.p.processes; ++process) {
    if (comm != world && process != c.p.process) continue;
    char* const segment = process == c.p.process ? c.p.segment : c.p.segments[process];
    *window_entry(c, segment, window, c.rank) = WindowEntry{nullptr, 0};
  }
  c.inbox->open[comm] &= ~(std::uint64_t{1} << (window % windows_each));
}

/// All ranks of `comm` open a window over memory that their processes have attached: the next of the comm's numbers.
MPIX_DEV_CALL Result win_open(Ctx& c, Comm comm, void* base, std::size_t bytes, int* window) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
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
    c.result = bytes > 0 && attachment == most_attachments ? Result::not_attached
               : number == windows_each                    ? Result::memory
                                                           : Result::ok;
    c.value = (comm == world ? opened_by_all : opened_here) + number;
    if (c.result != Result::memory) c.inbox->open[comm] |= std::uint64_t{1} << number;
    if (c.result == Result::ok) {
      for (std::uint32_t process = 0; process < c.p.processes; ++process) {
        if (comm != world && process != c.p.process) continue;
        char* const segment = process == c.p.process ? c.p.segment : c.p.segments[process];
        WindowEntry entry{nullptr, 1};
        if (bytes > 0)
          entry = WindowEntry{attached_entry(c, segment, attachment, c.p.process)->base + offset, bytes + 1};
        *window_entry(c, segment, static_cast<std::uint32_t>(c.value), c.rank) = entry;
      }
    }
  }
  sync_team(c);
  const Result result = c.result;
  const int number = static_cast<int>(c.value);
  const Result met = barrier(c, comm);
  if (met != Result::ok) return met;
  if (result == Result::memory) return fail(c, DevCall::win_open, result, -1, -1, static_cast<std::int64_t>(bytes), 0);
  // All have it, or none: who could not open it has no entry.
  const Team team = team_of(c);
  const std::uint32_t begin = comm == world ? 0 : c.p.first_rank;
  const std::uint32_t end = comm == world ? c.p.ranks : c.p.first_rank + c.p.ranks_here;
  if (team.index == 0) c.value = 0;
  sync_team(team);
  for (std::uint32_t rank = begin + team.index; rank < end; rank += team.size)
    if (window_entry(c, c.p.segment, static_cast<std::uint32_t>(number), rank)->present == 0) c.value = 1;
  sync_team(team);
  if (c.value == 0) {
    *window = number;
    return Result::ok;
  }
  // Nobody opens another one in its place before all have seen that.
  (void)barrier(c, comm);
  if (team.index == 0) forget_window(c, comm, static_cast<std::uint32_t>(number));
  sync_team(team);
  return fail(c, DevCall::win_open, Result::not_attached, -1, -1, static_cast<std::int64_t>(bytes), 0);
}

MPIX_DEV_CALL Result win_close(Ctx& c, int window) {
  sync_team(c);
  if (c.broken != Result::ok) return c.broken;
  if (window < static_cast<int>(opened_by_all) || window >= static_cast<int>(most_windows) ||
      window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), c.rank)->present == 0)
    return fail(c, DevCall::win_close, Result::window, window, -1);
  const Comm comm = window < static_cast<int>(opened_here) ? world : device;
  // Data that are on their way in lines go into the window: all have put by now, and flush() waits until they are
  // there.
  const Result flushed = flush(c, window);
  const Result met = flushed == Result::ok ? barrier(c, comm) : flushed;
  if (met != Result::ok) return met;
  if (is_first(c)) forget_window(c, comm, static_cast<std::uint32_t>(window));
  sync_team(c);
  return Result::ok;
}

/// Null: not a rank of this node, or outside of the window.
MPIX_DEV_FN void* pointer(Ctx& c, int window, int target, std::size_t displacement) {
  if (window < 0 || window >= static_cast<int>(most_windows) || target < 0 ||
      static_cast<std::uint32_t>(target) >= c.p.ranks)
    return nullptr;
  const WindowEntry entry =
      *window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), static_cast<std::uint32_t>(target));
  return entry.present > 0 && entry.present - 1 > displacement ? entry.base + displacement : nullptr;
}

MPIX_DEV_CALL Result init(Ctx& c, const MPIX_Dev_param& p, std::uint32_t team) {
#if MPIX_ON_DEVICE
  const bool first = team == block_team ? thread_of_block() == 0 : thread_of_block() % warp_width() == 0;
  const std::uint32_t here = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const std::uint32_t grid = gridDim.x * gridDim.y * gridDim.z;
#else
  const bool first = true;
  const std::uint32_t here = p.host_rank, grid = p.ranks_here;
#endif
  if (first) {
    c.p = p;
    c.team = team;
    c.rank = p.first_rank + here;
    c.broken = p.abi != MPIX_DEV_ABI ? Result::other : grid != p.ranks_here ? Result::argument : Result::ok;
#if !MPIX_ON_DEVICE
    if (c.broken == Result::ok && !p.hooks) c.broken = Result::argument;  // not from MPIX_Dev_launch_host
#endif
    c.at = places(p.ranks, p.processes);
    c.unfenced = c.has_put = 0;
    c.unflushed_count = 0;
    c.waits = 0;
    c.call = DevCall::init;
    c.query = Query{-1, -1, -1};
    c.needs = c.total = 0;
    c.asks = c.stays = c.wants_status = false;
    c.step = Step::over;
    if (c.broken == Result::ok) {
      c.inbox = reinterpret_cast<Inbox*>(p.segment + c.at.inboxes + here * p.inbox_bytes);
      c.reading = c.inbox;
      c.reading_of = c.rank;
      // Somebody may be reading the lanes in this rank's place: not for long.
      c.waits = 1;
      for (std::uint32_t looks = 1; !try_lock(&c.inbox->lock); ++looks) {
#if MPIX_ON_DEVICE
        doze(looks);
        if (looks % looks_between_notes != 0) continue;
        const bool released = load_relaxed(p.released) != 0;
#else
        (void)looks;
        const bool released = !p.hooks->pause(p.waiter, Sleep::for_room);
#endif
        note_waiting(c, 0);
        if (!released) continue;
        c.broken = Result::synchronization;
        break;
      }
      store_after_loads(&p.notes[here].waits, 0);
      c.state = c.inbox->reading;
      c.has_put = static_cast<std::uint32_t>(c.inbox->has_put);
    }
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
  if (is_first(c)) {
    c.broken = Result::argument;  // no call after this one
    c.inbox->reading = c.state;
    c.inbox->has_put = c.has_put;
    store_release(&c.inbox->lock, 0);
    if (c.p.launch > 0) store_release(&c.p.notes[c.rank - c.p.first_rank].launch, c.p.launch);
  }
  sync_team(c);
}

}  // namespace dev
}  // namespace mpix
