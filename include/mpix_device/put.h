// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "far_rma.h"
#include "put_as_usual.h"

/// Put, get, notify. All threads of the team call, with the same arguments.
namespace mpix {
namespace dev {

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

/// The team: lines from `begin` on, which were given out for them, and which may be written.
MPIX_DEV_FN void write_lines(const Ctx& c, const Team& team, const Aim& aim, std::uint64_t begin, std::uint64_t what,
                             std::uint64_t how, const char* data, std::uint32_t bytes) {
  const std::uint32_t shift = c.p.lane_shift, count = data_lines(bytes);
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  // From the last thread on, as the first has the entry to write.
  MPIX_NO_UNROLL
  for (std::uint32_t i = team.size - 1 - team.index; i < count; i += team.size) {
    const std::uint64_t n = begin + entry_lines + i;
    write_line(aim.lane + (n & mask), load_some(data, i, bytes), lap_of_line(n, shift));
  }
  // The data first: who sees the entry finds them there as a rule.
  if (team.index == 0) write_entry(aim.lane + (begin & mask), what, how, lap_of_line(begin, shift));
}

/// The team: an entry for the rank that is aimed at, with data where `how` says so. The team has met since it wrote the
/// data, and meets at the end: the source may be used again, by any thread.
MPIX_DEV_CALL Result send(Ctx& c, Aim& aim, std::uint64_t what, std::uint64_t how, const char* data) {
  const Team team = team_of(c);
  const std::uint32_t lines = lines_of(how);
  const std::uint32_t bytes = kind_of(how) == in_lines ? static_cast<std::uint32_t>(bytes_of(how)) : 0;
  if (c.has_put && kind_of(how) != direct) how |= after_puts;
  if (team.index == 0) {
    const std::uint64_t begin = take_lines(c, true, aim, lines);
    if (kind_of(how) == direct || c.unfenced) fence_for_target(c, aim);
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

MPIX_DEV_CALL Result put_in_any_case(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                     const void* local) {
  const Team team = team_of(c);
  sync_team(team);
  const Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local) {
    const Result wrong = find_target(c, DevCall::put, window, target, displacement, bytes, local == nullptr, 0);
    if (wrong != Result::ok) return wrong;
    if (is_far(c, static_cast<std::uint32_t>(target)))
      return put_far(c, DevCall::put, window, target, displacement, bytes, local, 0);
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
    if (is_far(c, static_cast<std::uint32_t>(target)))
      return get_far(c, DevCall::get, window, target, displacement, bytes, local, 0);
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
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  if (!is_aimed_at(aim, window, target, displacement, bytes) || !local || tag < 0) {
    const Result wrong =
        find_target(c, DevCall::put_notify, window, target, displacement, bytes, local == nullptr, tag);
    if (wrong != Result::ok) return wrong;
    if (is_far(c, static_cast<std::uint32_t>(target)))
      return put_far(c, DevCall::put_notify, window, target, displacement, bytes, local, tag);
  }
  char* const to = aim.base + displacement;
  const char* const from = static_cast<const char*>(local);
  const bool is_straight = bytes > c.p.inline_bytes || (to == from && bytes > 0);
  std::uint64_t how = how_in_lines(bytes, displacement);
  if (is_straight) {
    how = how_of(direct, bytes);
    copy_some(team, to, from, bytes);
    sync_team(team);
  }
  return send(c, aim, what, how, from);
}

#if MPIX_ON_DEVICE
/// The team: the rest of what had no room.
MPIX_DEV_CALL Result put_when_there_is_room(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                            const void* local, int tag) {
  const Team team = team_of(c);
  Aim& aim = aim_of(c, window, target);
  const bool is_straight = bytes > c.p.inline_bytes;
  const std::uint64_t begin = c.found.at;
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  const std::uint64_t how = is_straight ? how_of(direct, bytes) : how_in_lines(bytes, displacement);
  if (!wait_for_room(c, aim, what, begin + lines_of(how))) return Result::synchronization;
  if (is_straight && team.index == 0) fence_for_target(c, aim);
  write_lines(c, team, aim, begin, what, how, static_cast<const char*>(local),
              is_straight ? 0 : static_cast<std::uint32_t>(bytes));
  sync_team(team);
  return Result::ok;
}
#endif

MPIX_DEV_FN Result put_notify(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                              const void* local, int tag) {
#if MPIX_ON_DEVICE
  const Usual usual = put_as_usual(c, window, target, displacement, bytes, local, tag);
  if (usual == Usual::done) return Result::ok;
  if (usual == Usual::no_room) return put_when_there_is_room(c, window, target, displacement, bytes, local, tag);
#endif
  return put_notify_in_any_case(c, window, target, displacement, bytes, local, tag);
}

/// Rows of `width` bytes.
struct Rows {
  std::size_t width, height, target_stride, local_stride;
};

/// All threads of a team copy: the rows at once, so that many loads are under way.
MPIX_DEV_CALL void copy_rows(const Team team, char* to, const char* from, const Rows& rows) {
#if MPIX_ON_DEVICE
  const std::uintptr_t odd = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) |
                             rows.width | rows.target_stride | rows.local_stride;
  bool whole = odd % 16 == 0 && rows.width / 16 * rows.height < 1u << 31;
#if defined(__CUDA_ARCH__)
  whole = whole && __isGlobal(from) && __isGlobal(to);
#endif
  if (whole) {
    const auto each = static_cast<std::uint32_t>(rows.width / 16);
    const auto all = each * static_cast<std::uint32_t>(rows.height);
    const auto place = [each](std::uint32_t i, std::size_t stride) {
      return i / each * stride + std::size_t{i % each} * 16;
    };
    constexpr std::uint32_t at_once = 4;
    MPIX_NO_UNROLL
    for (std::uint32_t begin = team.index; begin < all; begin += at_once * team.size) {
      ulonglong2 quad[at_once];
#pragma unroll
      for (std::uint32_t k = 0; k < at_once; ++k)
        if (const std::uint32_t i = begin + k * team.size; i < all)
          quad[k] = load_once(reinterpret_cast<const ulonglong2*>(from + place(i, rows.local_stride)));
#pragma unroll
      for (std::uint32_t k = 0; k < at_once; ++k)
        if (const std::uint32_t i = begin + k * team.size; i < all)
          *reinterpret_cast<ulonglong2*>(to + place(i, rows.target_stride)) = quad[k];
    }
    return;
  }
#endif
  for (std::size_t row = 0; row < rows.height; ++row)
    copy_some(team, to + row * rows.target_stride, from + row * rows.local_stride, rows.width);
}

MPIX_DEV_CALL Result put_notify_2d(Ctx& c, int window, int target, std::size_t displacement, const void* local,
                                   const Rows& rows, int tag) {
  const Team team = team_of(c);
  sync_team(team);
  Aim& aim = aim_of(c, window, target);
  const bool none = rows.width == 0 || rows.height == 0;
  // From the first byte to the last; what does not fit into 44 bits is outside of any window.
  std::size_t extent = 0;
  if (!none) {
    const bool fits = rows.width < most_window_bytes && rows.target_stride < most_window_bytes / rows.height;
    extent = fits ? (rows.height - 1) * rows.target_stride + rows.width : most_window_bytes;
  }
  if (!is_aimed_at(aim, window, target, displacement, extent) || !local || tag < 0) {
    const Result wrong =
        find_target(c, DevCall::put_notify_2d, window, target, displacement, extent, local == nullptr, tag);
    if (wrong != Result::ok) return wrong;
    if (is_far(c, static_cast<std::uint32_t>(target))) {
      const std::size_t height = none ? 1 : rows.height;
      for (std::size_t row = 0; row < height; ++row) {
        const Result result = put_far(c, row + 1 == height ? DevCall::put_notify_2d : DevCall::put, window, target,
                                      displacement + row * rows.target_stride, none ? 0 : rows.width,
                                      static_cast<const char*>(local) + row * rows.local_stride, tag, row * rows.width);
        if (result != Result::ok) return result;
      }
      return Result::ok;
    }
  }
  char* const to = aim.base + displacement;
  const char* const from = static_cast<const char*>(local);
  const bool is_there = to == from && (rows.height == 1 || rows.target_stride == rows.local_stride);
  if (!none && !is_there) copy_rows(team, to, from, rows);
  sync_team(team);
  return send(c, aim, what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)),
              how_of(direct, none ? 0 : rows.width * rows.height), nullptr);
}

/// A notification without data; it tells of earlier puts, and of stores.
MPIX_DEV_CALL Result notify(Ctx& c, int window, int target, int tag) {
  const Team team = team_of(c);
  sync_team(team);
  Aim& aim = aim_of(c, window, target);
  if (!is_aimed_at(aim, window, target, 0, 0) || tag < 0) {
    const Result wrong = find_target(c, DevCall::notify, window, target, 0, 0, false, tag);
    if (wrong != Result::ok) return wrong;
    if (is_far(c, static_cast<std::uint32_t>(target)))
      return put_far(c, DevCall::notify, window, target, 0, 0, nullptr, tag);
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
    if (is_far(c, static_cast<std::uint32_t>(target)))
      return get_far(c, DevCall::get_notify, window, target, displacement, bytes, local, tag);
  }
  copy_some(team, local, aim.base + displacement, bytes);
  sync_team(team);
  return send(c, aim, what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window)),
              how_of(was_read, bytes), nullptr);
}

}  // namespace dev
}  // namespace mpix
