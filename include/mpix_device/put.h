// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "far_rma.h"

/// Put, get, notify. All threads of the team call, with the same arguments.
namespace mpix {
namespace dev {

/// One thread. Whether that is its target already all have looked before they met: the compiler looks ahead, by all.
MPIX_DEV_FN void take_aim(Ctx& c, Aim& aim, std::uint32_t target) {
  aim.target = static_cast<std::int32_t>(target);
  aim.present = 0;
  aim.is_noted = false;
  if (is_far(c, target)) return;
  aim.lane = lane_of(c, c.p.inboxes[target], c.p.process);
  aim.sent = sent_to(c, target);
  aim.room = room_of(c, c.p.process, target);
  aim.room_seen = 0;
  aim.is_here = is_here(c, target);
}

MPIX_DEV_FN bool is_aimed_at(const Aim& aim, int window, int target, std::uint64_t displacement, std::uint64_t bytes) {
  // Not one after another: each takes a load. (Behind the end the difference is large, or the first does not hold.)
  const std::uint64_t present = aim.present;
  return (aim.target == target) & (aim.window == window) & (displacement < present) & (bytes < present - displacement);
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
  Aim& aim = aim_of(c, window, target);
  const bool is_its_target = aim.target == target;
  sync_team(team);
  if (team.index == 0) {
    if (!is_its_target) take_aim(c, aim, static_cast<std::uint32_t>(target));
    if (!is_far(c, static_cast<std::uint32_t>(target))) {
      aim.window = window;
      aim.base = entry.base;
      aim.present = entry.present;
    }
  }
  sync_team(team);
  return Result::ok;
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
    const std::uint64_t begin = fetch_add_on_device(aim.sent, lines);
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

#if MPIX_ON_DEVICE
/// Pieces of 16 bytes, in memory that is not the block's.
MPIX_DEV_FN bool is_in_quads(const char* to, const char* from, std::uint64_t bytes) {
  bool whole = ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) & 15) == 0;
#if defined(__CUDA_ARCH__)
  whole = whole && __isGlobal(from) && __isGlobal(to);
#endif
  return whole;
}

/// A short loop, as the threads of a block have as many loads under way as it takes: with 8 at once 64 KiB took 6.6 µs,
/// with 4 5.8, with 2 5.65.
MPIX_DEV_FN void copy_quads(const Team& team, char* to, const char* from, std::uint64_t bytes) {
  const auto count = static_cast<std::uint32_t>(bytes / 16);
  auto* const target = reinterpret_cast<ulonglong2*>(to);
  const auto* const source = reinterpret_cast<const ulonglong2*>(from);
  std::uint32_t i = team.index;
  MPIX_NO_UNROLL
  for (; i + team.size < count; i += 2 * team.size) {
    const ulonglong2 one = load_once(source + i), other = load_once(source + i + team.size);
    target[i] = one, target[i + team.size] = other;
  }
  if (i < count) target[i] = load_once(source + i);
}

/// Data that go straight into the window have their place in the lane before they are copied, up to so many bytes: what
/// ranks of the process then send to the target waits for them.
constexpr std::uint64_t most_bytes_ahead = 65536, most_quads_bytes = std::uint64_t{1} << 34;

/// The usual put straight into the window. The team has met; it meets when it has read the source. The entry's first
/// line goes out before the fence: the target knows what comes while that takes its time, and acts on the second one.
MPIX_DEV_CALL Result put_quads(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                               const void* local, int tag) {
  const Team team = team_of(c);
  Aim& aim = aim_of(c, window, target);
  const bool ahead = bytes <= most_bytes_ahead;
  std::uint64_t begin = 0;
  if (ahead && team.index == 0) begin = fetch_add_on_device(aim.sent, entry_lines);
  copy_quads(team, aim.base + displacement, static_cast<const char*>(local), bytes);
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  Line* entry = nullptr;
  std::uint32_t lap = 0;
  if (team.index == 0) {
    if (!ahead) begin = fetch_add_on_device(aim.sent, entry_lines);
    entry = aim.lane + (static_cast<std::uint32_t>(begin) & mask);
    lap = static_cast<std::uint32_t>(begin >> shift) + 1;
    if (begin + entry_lines > aim.room_seen) aim.room_seen = load_before_stores(aim.room);
    const bool has_room = begin + entry_lines <= aim.room_seen;
    if (has_room) write_line(entry, what, lap);
    c.found.at = begin;
    c.value = has_room;
  }
  sync_team(team);
  if (c.value == 0) {
    if (!wait_for_room(c, aim, what, c.found.at + entry_lines)) return Result::synchronization;
    if (team.index == 0) write_line(entry, what, lap);
  }
  if (team.index == 0) {
    fence_for_target(c, aim);
    write_line(entry + 1, how_of(direct, bytes), lap);
  }
  return Result::ok;
}
#endif

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
#if MPIX_ON_DEVICE
  if (is_straight && to != from && bytes <= most_quads_bytes && is_in_quads(to, from, bytes))
    return put_quads(c, window, target, displacement, bytes, local, tag);
#endif
  std::uint64_t how = how_in_lines(bytes, displacement);
  if (is_straight) {
    how = how_of(direct, bytes);
    copy_some(team, to, from, bytes);
    sync_team(team);
  }
  return send(c, aim, what, how, from);
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
  const std::uint32_t owed = c.has_put | c.unfenced;
  char* const to = aim.base + displacement;
  const bool is_right = is_aimed_at(aim, window, target, displacement, bytes) & (local != nullptr) & (tag >= 0);
  const bool is_usual = is_right & (aim.is_noted | (bytes == 0)) & (bytes <= c.p.inline_bytes) &
                        (((reinterpret_cast<std::uintptr_t>(local) | bytes) & 7) == 0) & (owed == 0) & (to != from);
  if (!is_usual) {
    if (is_right & (bytes > c.p.inline_bytes) & (bytes <= most_quads_bytes) & (to != from) &&
        is_in_quads(to, from, bytes))
      return put_quads(c, window, target, displacement, bytes, local, tag);
    return put_notify_in_any_case(c, window, target, displacement, bytes, local, tag);
  }
#else
  return put_notify_in_any_case(c, window, target, displacement, bytes, local, tag);
#endif
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
  const std::uint64_t room_seen = aim.room_seen;
  sync_team(team);
  const std::uint64_t begin = c.found.at;
  if (begin + lines > room_seen) {
    if (team.index == 0) aim.room_seen = load_before_stores(aim.room);
    sync_team(team);
    if (begin + lines > aim.room_seen) return send_when_there_is_room(c, aim, what, how, from);
  }
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
    const auto place = [each](std::uint32_t i, std::size_t stride) { return i / each * stride + i % each * 16; };
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
        find_target(c, DevCall::put_notify, window, target, displacement, extent, local == nullptr, tag);
    if (wrong != Result::ok) return wrong;
    if (is_far(c, static_cast<std::uint32_t>(target))) {
      const std::size_t height = none ? 1 : rows.height;
      for (std::size_t row = 0; row < height; ++row) {
        const Result result = put_far(c, row + 1 == height ? DevCall::put_notify : DevCall::put, window, target,
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
