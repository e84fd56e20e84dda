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

/// One thread.
MPIX_DEV_FN void take_aim(Ctx& c, Aim& aim, std::uint32_t target) {
  if (aim.target == static_cast<std::int32_t>(target)) return;
  aim.target = static_cast<std::int32_t>(target);
  aim.present = 0;
  aim.lane = lane_of(c, c.p.inboxes[target], c.p.process);
  aim.sent = sent_to(c, target);
  aim.room = room_of(c, c.p.process, target);
  aim.room_seen = 0;
  aim.is_here = is_here(c, target);
  aim.is_noted = false;
}

MPIX_DEV_FN bool is_aimed_at(const Aim& aim, int window, int target, std::uint64_t displacement, std::uint64_t bytes) {
  return aim.target == target && aim.window == window && displacement < aim.present &&
         bytes < aim.present - displacement;
}

/// The team: aims at a part of a window, if the arguments are right.
MPIX_DEV_CALL Result find_target(Ctx& c, DevCall call, int window, int target, std::uint64_t displacement,
                                 std::uint64_t bytes, bool no_buffer, int tag) {
  const Team team = team_of(c);
  Result wrong = c.broken;
  if (wrong != Result::ok) return wrong;
  WindowEntry entry{};
  if (target < 0 || static_cast<std::uint32_t>(target) >= c.p.ranks) {
    wrong = Result::rank;
  } else if (window < 0 || window >= static_cast<int>(most_windows)) {
    wrong = Result::window;
  } else {
    entry = *window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), static_cast<std::uint32_t>(target));
    if (entry.present == 0)
      wrong = Result::window;
    else if (tag < 0)
      wrong = Result::tag;
    else if (displacement > entry.present - 1 || bytes > entry.present - 1 - displacement)
      wrong = Result::range;
    else if (no_buffer && bytes > 0)
      wrong = Result::buffer;
  }
  if (wrong != Result::ok)
    return fail(c, call, wrong, window, target,
                wrong == Result::tag ? std::int64_t{tag} : static_cast<std::int64_t>(displacement),
                static_cast<std::int64_t>(bytes));
  sync_team(team);
  if (team.index == 0) {
    Aim& aim = aim_of(c, window, target);
    take_aim(c, aim, static_cast<std::uint32_t>(target));
    aim.window = window;
    aim.base = entry.base;
    aim.present = entry.present;
  }
  sync_team(team);
  return Result::ok;
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

/// A GPU looks more often whether the wait is over than into its lanes: a look is a trip to memory, and the team's
/// meetings around it take as long.
constexpr std::uint32_t looks_each_turn = MPIX_ON_DEVICE ? 8 : 1;
constexpr std::uint32_t turns_between_reading = MPIX_ON_DEVICE ? 2 : 1;

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
      bool is_over = done();
      for (std::uint32_t look = 1; !is_over && look < looks_each_turn; ++look) is_over = done();
      c.value = is_over;
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
    if (team.index == 0) give_up(c, Result::synchronization);
    sync_team(team);
    return false;
  }
  if (in_first_warp(team)) end_wait(c, wait, first_warp_of(team));
  return true;
}

MPIX_DEV_CALL bool wait_for_room(Ctx& c, Aim& aim, std::uint64_t what, std::uint64_t end) {
  if (is_first(c)) {
    c.query = Query{static_cast<std::int32_t>(window_of(what)), aim.target, static_cast<std::int32_t>(tag_of(what))};
    c.needs = c.total = 0;
    ++c.waits;
  }
  return until(
      c, DevCall::put_notify, Sleep::for_room,
      [&] {
        aim.room_seen = load_before_stores(aim.room);
        return aim.room_seen >= end;
      },
      [&] { read_for(c, static_cast<std::uint32_t>(aim.target)); });
}

MPIX_DEV_FN void note_unflushed(Ctx& c, std::uint32_t target) {
  MPIX_NO_UNROLL
  for (std::uint32_t i = 0; i < c.unflushed_count && i < most_unflushed; ++i)
    if (c.unflushed[i] == target) return;
  if (c.unflushed_count < most_unflushed) c.unflushed[c.unflushed_count] = target;
  if (c.unflushed_count <= most_unflushed) ++c.unflushed_count;
}

/// First thread: what comes next into the lane may be seen with all that the rank has stored before.
MPIX_DEV_FN void fence_for_target(Ctx& c, const Aim& aim) {
  if (aim.is_here) {
    fence_on_device();  // others may still be owed one that reaches them
  } else {
    fence_stores();
    c.unfenced = 0;
  }
}

/// The team: lines from `begin` on, which were given out for them, and which may be written.
MPIX_DEV_FN void write_lines(const Ctx& c, const Team& team, const Aim& aim, std::uint64_t begin, std::uint64_t what,
                             std::uint64_t how, const char* data, std::uint32_t bytes) {
  const std::uint32_t shift = c.p.lane_shift, count = data_lines(bytes);
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  // From the last thread on, as the first has the entry to write.
  MPIX_NO_UNROLL
  for (std::uint32_t i = team.size - 1 - team.index; i < count; i += team.size) {
    const std::uint64_t n = begin + entry_lines + i;
    write_line(aim.lane + (n & mask), load_some(data, i, bytes), static_cast<std::uint32_t>(n >> shift) + 1);
  }
  // The data first: who sees the entry finds them there as a rule.
  if (team.index == 0)
    write_entry(aim.lane + (begin & mask), what, how, static_cast<std::uint32_t>(begin >> shift) + 1);
}

/// The team: an entry for the rank that is aimed at, with data where `how` says so. The team has met since it wrote the
/// data, and meets at the end: the source may be used again, by any thread.
MPIX_DEV_CALL Result send(Ctx& c, Aim& aim, std::uint64_t what, std::uint64_t how, const char* data) {
  const Team team = team_of(c);
  const std::uint32_t lines = lines_of(how);
  const std::uint32_t bytes = kind_of(how) == in_lines ? static_cast<std::uint32_t>(bytes_of(how)) : 0;
  if (c.has_put && kind_of(how) != direct) how |= after_puts;
  if (team.index == 0) {
    if (kind_of(how) == direct || c.unfenced) fence_for_target(c, aim);
    const std::uint64_t begin = fetch_add_on_device(aim.sent, lines);
    if (begin + lines > aim.room_seen) aim.room_seen = load_before_stores(aim.room);
    c.found.at = begin;
    c.value = begin + lines <= aim.room_seen;
    if (bytes > 0 && !aim.is_noted) {
      note_unflushed(c, static_cast<std::uint32_t>(aim.target));
      aim.is_noted = true;
    }
  }
  sync_team(team);
  const std::uint64_t begin = c.found.at;
  if (c.value == 0 && !wait_for_room(c, aim, what, begin + lines)) return Result::synchronization;
  write_lines(c, team, aim, begin, what, how, data, bytes);
  ring_rank(c, c.p.inboxes[aim.target]);
  sync_team(team);
  return Result::ok;
}

/// All threads of a team copy.
MPIX_DEV_CALL void copy_by(const Team team, void* to, const void* from, std::size_t bytes) {
#if defined(__CUDA_ARCH__)
  if (!__isGlobal(from) || !__isGlobal(to)) {  // memory of the block, which copy_bytes cannot read
    for (std::size_t i = team.index; i < bytes; i += team.size)
      static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    return;
  }
#endif
  copy_bytes(static_cast<char*>(to), static_cast<const char*>(from), bytes, team);
}

MPIX_DEV_FN void copy_some(const Team& team, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && bytes < most_window_bytes && to != from) copy_by(team, to, from, bytes);
}

MPIX_DEV_CALL Result put_in_any_case(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                     const void* local) {
  const Team team = team_of(c);
  sync_team(team);
  const Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local) {
    const Result wrong = find_target(c, DevCall::put, window, target, displacement, bytes, local == nullptr, 0);
    if (wrong != Result::ok) return wrong;
  }
  copy_some(team, aim.base + displacement, local, bytes);
  if (team.index == 0) c.unfenced = c.has_put = 1;
  sync_team(team);
  return Result::ok;
}

MPIX_DEV_FN Result put(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes, const void* local) {
  // Ranks that share an array put what lies where it belongs, often: that takes no call.
  const Aim& aim = aim_of(c, window, target);
  if (is_aimed_at(aim, window, target, displacement, bytes) && aim.base + displacement == local) {
    if (is_first(c)) c.unfenced = c.has_put = 1;
    return Result::ok;
  }
  return put_in_any_case(c, window, target, displacement, bytes, local);
}

MPIX_DEV_CALL Result get(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes, void* local) {
  const Team team = team_of(c);
  sync_team(team);
  const Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local) {
    const Result wrong = find_target(c, DevCall::get, window, target, displacement, bytes, local == nullptr, 0);
    if (wrong != Result::ok) return wrong;
  }
  copy_some(team, local, aim.base + displacement, bytes);
  sync_team(team);
  return Result::ok;
}

/// Any put with a notification; the team has met.
MPIX_DEV_CALL Result put_notify_in_any_case(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                            const void* local, int tag) {
  const Team team = team_of(c);
  Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local || tag < 0) {
    const Result wrong =
        find_target(c, DevCall::put_notify, window, target, displacement, bytes, local == nullptr, tag);
    if (wrong != Result::ok) return wrong;
  }
  char* const to = aim.base + displacement;
  const char* const from = static_cast<const char*>(local);
  std::uint64_t how = how_in_lines(bytes, displacement);
  if (bytes > c.p.inline_bytes || (to == from && bytes > 0)) {
    how = how_of(direct, bytes);
    copy_some(team, to, from, bytes);
    sync_team(team);
  }
  return send(c, aim, what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)), how, from);
}

#if MPIX_ON_DEVICE
/// The team: lines were given out from c.found.at on, where there is no room yet.
MPIX_DEV_CALL Result send_when_there_is_room(Ctx& c, Aim& aim, std::uint64_t what, std::uint64_t how,
                                             const char* data) {
  const Team team = team_of(c);
  const std::uint64_t begin = c.found.at;
  if (!wait_for_room(c, aim, what, begin + lines_of(how))) return Result::synchronization;
  write_lines(c, team, aim, begin, what, how, data, static_cast<std::uint32_t>(bytes_of(how)));
  sync_team(team);
  return Result::ok;
}
#endif

/// On a GPU what this takes is instructions, one behind the other: so the usual case has as few as can be, with no call
/// in between, across which registers would have to be saved.
MPIX_DEV_CALL Result put_notify(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                const void* local, int tag) {
  const Team team = team_of(c);
  sync_team(team);
#if MPIX_ON_DEVICE
  Aim& aim = aim_of(c, window, target);
  const char* const from = static_cast<const char*>(local);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !aim.is_noted || !local || tag < 0 ||
      bytes > c.p.inline_bytes || ((reinterpret_cast<std::uintptr_t>(local) | bytes) & 7) != 0 || c.has_put != 0 ||
      c.unfenced != 0 || aim.base + displacement == from)
#endif
    return put_notify_in_any_case(c, window, target, displacement, bytes, local, tag);
#if MPIX_ON_DEVICE
  const auto count = static_cast<std::uint32_t>(bytes) / 8, lines = (entry_lines + count + 1) / 2 * 2;
  // While the first thread asks for lines. From the last thread on, as the first has the entry to write.
  std::uint32_t i = team.size - 1 - team.index;
  std::uint64_t word = i < count ? reinterpret_cast<const std::uint64_t*>(from)[i] : 0;
  if (team.index == 0) c.found.at = fetch_add_on_device(aim.sent, lines);
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  const std::uint64_t how = how_in_lines(bytes, displacement);
  Line* const lane = aim.lane;
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  sync_team(team);
  const std::uint64_t begin = c.found.at;
  if (begin + lines > aim.room_seen) return send_when_there_is_room(c, aim, what, how, from);
  if (i < count) {
    while (true) {
      const std::uint64_t n = begin + entry_lines + i;
      write_line(lane + (static_cast<std::uint32_t>(n) & mask), word, static_cast<std::uint32_t>(n >> shift) + 1);
      if ((i += team.size) >= count) break;
      word = reinterpret_cast<const std::uint64_t*>(from)[i];
    }
  }
  if (team.index == 0)
    write_entry(lane + (static_cast<std::uint32_t>(begin) & mask), what, how,
                static_cast<std::uint32_t>(begin >> shift) + 1);
  sync_team(team);
  return Result::ok;
#endif
}

/// A notification without data; it tells of earlier puts, and of stores.
MPIX_DEV_CALL Result notify(Ctx& c, int window, int target, int tag) {
  const Team team = team_of(c);
  sync_team(team);
  Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, 0, 0) || tag < 0) {
    const Result wrong = find_target(c, DevCall::notify, window, target, 0, 0, false, tag);
    if (wrong != Result::ok) return wrong;
  }
  return send(c, aim, what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)),
              how_of(direct, 0), nullptr);
}

MPIX_DEV_CALL Result get_notify(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                void* local, int tag) {
  const Team team = team_of(c);
  sync_team(team);
  Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local || tag < 0) {
    const Result wrong =
        find_target(c, DevCall::get_notify, window, target, displacement, bytes, local == nullptr, tag);
    if (wrong != Result::ok) return wrong;
  }
  copy_some(team, local, aim.base + displacement, bytes);
  sync_team(team);
  return send(c, aim, what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)),
              how_of(was_read, bytes), nullptr);
}

/// Until `target` has taken all that this rank has sent so far.
MPIX_DEV_FN bool wait_for_taken(Ctx& c, const Team& team, std::uint32_t target) {
  Aim& aim = c.aims[aims];
  sync_team(team);
  if (team.index == 0) take_aim(c, aim, target);
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
    for (Aim& aim : c.aims) aim.is_noted = false;
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
  store_after_loads(&own.go[comm], number);  // the fence holds for it, too
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
    // The last to arrive fences for those of other GPUs: that holds for what it has seen others to have stored, too.
    fence_on_device();
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
    fence_on_device();  // the last has fenced for other GPUs
    if (comm == world) c.has_put = c.unfenced = 0;
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
  forget_parts(c);
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
    for (Aim& aim : c.aims) aim.target = -1;
    c.fenced = Fenced{0, 0};
    c.left_process = ~0u;
    forget_parts(c);
#if MPIX_ON_DEVICE
    c.front_shift = front_shift(p.processes);
#endif
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
      c.lanes = lane_of(c, reinterpret_cast<char*>(c.inbox), 0);
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
    give_up(c, Result::argument);  // no call after this one
    c.inbox->reading = c.state;
    c.inbox->has_put = c.has_put;
    store_release(&c.inbox->lock, 0);
    if (c.p.launch > 0) store_release(&c.p.notes[c.rank - c.p.first_rank].launch, c.p.launch);
  }
  sync_team(c);
}

}  // namespace dev
}  // namespace mpix
