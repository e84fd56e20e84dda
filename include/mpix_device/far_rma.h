// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "until.h"

/// What ranks do to those of other nodes: by tasks for the service (far.h). All of the team call.
namespace mpix {
namespace dev {

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

MPIX_DEV_FN Lane far_lane(const Ctx& c) { return Lane{c.p.far_tasks, far_tasks}; }

/// First thread: what the waits below are for, in reports.
MPIX_DEV_FN void note_query(Ctx& c, int window, int rank, int tag) {
  c.query = Query{window, rank, tag};
  c.needs = c.total = 0;
  ++c.waits;
}

/// Room for data, at c.far_place.
MPIX_DEV_CALL bool take_far_room(Ctx& c, DevCall call, std::uint64_t bytes) {
  const Team team = team_of(c);
  if (team.index == 0) c.far_place = fetch_add_on_device(&header_of(c.p.segment).data_given, far_round(bytes));
  sync_team(team);
  const std::uint64_t end = c.far_place + far_round(bytes);
  return end <= c.far_freed + far_data_bytes || until(c, call, Sleep::for_room, [&] {
           c.far_freed = load_before_stores(&c.p.far_words->data_freed);
           return end <= c.far_freed + far_data_bytes;
         });
}

/// What the team has written before is there for whoever takes the task.
MPIX_DEV_CALL bool post_far(Ctx& c, DevCall call, TaskKind kind, std::uint64_t what, std::uint64_t route,
                            std::uint64_t displacement, std::uint64_t bytes, std::uint64_t place,
                            std::uint64_t before) {
  const Team team = team_of(c);
  sync_team(team);
  if (team.index == 0) c.far_number = fetch_add_on_device(&header_of(c.p.segment).tasks_given, 1) + 1;
  sync_team(team);
  const std::uint64_t number = c.far_number;
  if (number > c.far_taken + far_tasks && !until(c, call, Sleep::for_room, [&] {
        c.far_taken = load_before_stores(&c.p.far_words->tasks_taken);
        return number <= c.far_taken + far_tasks;
      }))
    return false;
  if (team.index == 0) {
    write_task(far_lane(c), number, kind, {what, route, displacement, bytes, place, before});
    fence_stores();
    publish_task(far_lane(c), number);
#if !MPIX_ON_DEVICE
    c.p.hooks->post(c.p.waiter);
#endif
  }
  sync_team(team);
  return true;
}

enum class Way : std::uint32_t { in, out };
/// Between `local` and the room for data, which is a ring.
MPIX_DEV_CALL void copy_far(const Ctx& c, Way way, std::uint64_t place, char* local, std::uint64_t bytes) {
  const Team team = team_of(c);
  const std::uint64_t at = place % far_data_bytes;
  const std::uint64_t first = bytes < far_data_bytes - at ? bytes : far_data_bytes - at;
  char* const there = c.p.far_data + at;
  copy_some(team, way == Way::out ? there : local, way == Way::out ? local : there, first);
  copy_some(team, way == Way::out ? c.p.far_data : local + first, way == Way::out ? local + first : c.p.far_data,
            bytes - first);
}

/// `before`: bytes of the same notification that were put before.
MPIX_DEV_CALL Result put_far(Ctx& c, DevCall call, int window, int target, std::size_t displacement, std::size_t bytes,
                             const void* local, int tag, std::uint64_t before = 0) {
  const Team team = team_of(c);
  const bool notifies = call != DevCall::put;
  const std::uint64_t what =
      what_of(notifies ? static_cast<std::uint32_t>(tag) : 0, c.rank, static_cast<std::uint32_t>(window));
  if (team.index == 0) note_query(c, window, target, tag);
  std::uint64_t done = 0;
  do {
    const std::uint64_t piece = bytes - done < far_piece_bytes ? bytes - done : far_piece_bytes;
    if (piece == 0 && !notifies) break;
    if (piece > 0) {
      if (!take_far_room(c, call, piece)) return Result::synchronization;
      // It is only read.
      copy_far(c, Way::out, c.far_place, const_cast<char*>(static_cast<const char*>(local)) + done, piece);
    }
    const bool is_last = done + piece == bytes;
    if (!post_far(c, call, TaskKind::far_put, what,
                  static_cast<std::uint32_t>(target) | (is_last && notifies ? far_notifies : 0), displacement + done,
                  piece, c.far_place, before + done))
      return Result::synchronization;
    done += piece;
  } while (done < bytes);
  if (team.index == 0) {
    c.far_unflushed = 1;
    if (call == DevCall::put) c.far_put = 1;
  }
  sync_team(team);
  return Result::ok;
}

MPIX_DEV_CALL Result get_far(Ctx& c, DevCall call, int window, int target, std::size_t displacement, std::size_t bytes,
                             void* local, int tag) {
  const Team team = team_of(c);
  const bool notifies = call != DevCall::get;
  const std::uint64_t what =
      what_of(notifies ? static_cast<std::uint32_t>(tag) : 0, c.rank, static_cast<std::uint32_t>(window));
  if (team.index == 0) note_query(c, window, target, tag);
  std::uint64_t done = 0;
  do {
    const std::uint64_t piece = bytes - done < far_piece_bytes ? bytes - done : far_piece_bytes;
    if (piece == 0 && !notifies) break;
    if (!take_far_room(c, call, piece)) return Result::synchronization;
    const std::uint64_t place = c.far_place;
    const std::uint64_t notice = done + piece == bytes && notifies ? far_notifies : 0;
    if (!post_far(c, call, TaskKind::far_get, what, static_cast<std::uint32_t>(target) | notice, displacement + done,
                  piece, place, done))
      return Result::synchronization;
    const std::uint64_t awaited = c.far_replies + 1;
    if (!until(c, call, Sleep::for_room, [&] { return load_before_stores(&far_rank(c).replies) >= awaited; }))
      return Result::synchronization;
    if (team.index == 0) {
      fence_acquire();
      c.far_replies = awaited;
    }
    sync_team(team);
    copy_far(c, Way::in, place, static_cast<char*>(local) + done, piece);
    if (!post_far(c, call, TaskKind::far_release, 0, 0, 0, piece, place, 0)) return Result::synchronization;
    done += piece;
  } while (done < bytes);
  return Result::ok;
}

/// All that this rank has put to other nodes is in the windows there.
MPIX_DEV_CALL bool flush_far(Ctx& c) {
  const Team team = team_of(c);
  sync_team(team);
  if (c.far_unflushed == 0) return true;
  const std::uint64_t awaited = c.far_flushes + 1;
  if (!post_far(c, DevCall::flush, TaskKind::far_flush, c.rank, awaited, 0, 0, 0, 0)) return false;
  if (!until(c, DevCall::flush, Sleep::for_room, [&] { return load_before_stores(&far_rank(c).flushed) >= awaited; }))
    return false;
  if (team.index == 0) {
    c.far_flushes = awaited;
    c.far_unflushed = c.far_put = 0;
  }
  sync_team(team);
  return true;
}

}  // namespace dev
}  // namespace mpix
