// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "aim.h"

/// The usual puts with a notification, on a GPU.
namespace mpix {
namespace dev {

#if MPIX_ON_DEVICE
/// Pieces of 16 bytes, in memory that is not the block's.
MPIX_DEV_FN bool is_in_quads(const char* to, const char* from, std::uint64_t bytes) {
  bool whole = ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) & 15) == 0;
#if defined(__CUDA_ARCH__)
  whole = whole && __isGlobal(from);  // windows are, anyway
#endif
  return whole;
}

/// A short loop, as the threads of a block have as many loads under way as it takes: with 8 at once 64 KiB took 6.6 µs,
/// with 4 5.8, with 2 5.65. `meanwhile`: what is done once, while the first loads are on their way.
template <class Meanwhile>
MPIX_DEV_FN void copy_quads(const Team& team, char* to, const char* from, std::uint64_t bytes, Meanwhile meanwhile) {
  const auto count = static_cast<std::uint32_t>(bytes / 16);
  auto* const target = reinterpret_cast<ulonglong2*>(to);
  const auto* const source = reinterpret_cast<const ulonglong2*>(from);
  std::uint32_t i = team.index;
  ulonglong2 one{}, other{};
  if (i < count) one = load_once(source + i);
  if (i + team.size < count) other = load_once(source + i + team.size);
  meanwhile();
  if (i < count) target[i] = one;
  if (i + team.size < count) target[i + team.size] = other;
  i += 2 * team.size;
  MPIX_NO_UNROLL
  for (; i + team.size < count; i += 2 * team.size) {
    one = load_once(source + i), other = load_once(source + i + team.size);
    target[i] = one, target[i + team.size] = other;
  }
  if (i < count) target[i] = load_once(source + i);
}

/// Data that go straight into the window have their place in the lane before they are copied, up to so many bytes: what
/// ranks of the process then send to the target waits for them.
constexpr std::uint64_t most_bytes_ahead = 65536, most_quads_bytes = std::uint64_t{1} << 34;

/// How far the usual case has come.
enum class Usual : std::uint32_t {
  done,
  no_room,  ///< lines from c.found.at on are given out, and may not be written yet; data straight into the window are
            ///< there
  other,    ///< nothing was done: it is not the usual case
};

/// The team, which has met: the usual put straight into the window. It has met again when it has read the source. The
/// entry's first line goes out before the fence: the target knows what comes while that takes its time, and acts on the
/// second one.
MPIX_DEV_FN Usual put_quads(Ctx& c, const Team& team, Aim& aim, std::uint64_t what, char* to, const char* from,
                            std::uint64_t bytes) {
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  Line* entry = nullptr;
  std::uint32_t lap = 0;
  bool has_room = true;
  const auto announce = [&](std::uint64_t begin) {
    if (team.index != 0) return;
    entry = aim.lane + (static_cast<std::uint32_t>(begin) & mask);
    lap = lap_of_line(begin, shift);
    if (begin + entry_lines > aim.room_seen) aim.room_seen = load_before_stores(aim.room);
    has_room = begin + entry_lines <= aim.room_seen;
    if (has_room)
      write_line(entry, what, lap);
    else
      c.found.at = begin;
  };
  const bool ahead = bytes <= most_bytes_ahead;
  const std::uint64_t place = take_lines(c, ahead && team.index == 0, aim, entry_lines);
  copy_quads(team, to, from, bytes, [&] {
    if (ahead) announce(place);
  });
  if (!ahead) announce(take_lines(c, team.index == 0, aim, entry_lines));
  if (!ask_first(c, team, has_room)) return Usual::no_room;
  if (team.index == 0) {
    fence_for_target(c, aim);
    write_line(entry + 1, how_of(direct, bytes), lap);
  }
  return Usual::done;
}

/// The team, which has met: the usual put of few whole words, to a target that is known. It meets when it has read the
/// source. Line k of the notification is written by thread k, the entry first.
MPIX_DEV_FN Usual put_words(Ctx& c, const Team& team, Aim& aim, std::uint64_t what, std::uint64_t how,
                            const std::uint64_t* from, std::uint32_t count) {
  const std::uint32_t end = entry_lines + count, lines = (end + 1) / 2 * 2;
  const std::uint32_t shift = c.p.lane_shift, mask = (1u << shift) - 1;
  std::uint32_t k = team.index;
  const auto word = [&] {
    std::uint64_t data = 0;
    if (k - entry_lines < count) data = from[k - entry_lines];
    return k == 0 ? what : k == 1 ? how : data;
  };
  const auto write = [&](std::uint64_t begin, std::uint64_t data) {
    const std::uint64_t n = begin + k;
    write_line(aim.lane + (static_cast<std::uint32_t>(n) & mask), data, lap_of_line(n, shift));
  };
  bool has_room = true;
  if (end <= warp_width() && end <= team.size) {
    if (k < warp_width()) {
      const Workers warp = first_warp_of(team);
      const std::uint64_t room_seen = aim.room_seen, number = take_lines(c, k == 0, aim, lines);
      const std::uint64_t data = word(), begin = from_thread(warp, number, 0);
      has_room = begin + lines <= room_seen;
      if (!has_room) {
        sync_warp(warp);
        if (k == 0) {
          aim.room_seen = load_before_stores(aim.room);
          c.found.at = begin;
        }
        sync_warp(warp);
        has_room = begin + lines <= aim.room_seen;
      }
      if (has_room && k < end) write(begin, data);
    }
    return ask_first(c, team, has_room) ? Usual::done : Usual::no_room;
  }
  const std::uint64_t number = take_lines(c, k == 0, aim, lines);
  std::uint64_t data = word();
  if (k == 0) {
    if (number + lines > aim.room_seen) aim.room_seen = load_before_stores(aim.room);
    c.found.at = number;
    c.value = number + lines <= aim.room_seen;
  }
  sync_team(team);
  if (c.value == 0) return Usual::no_room;
  const std::uint64_t begin = c.found.at;
  while (k < end) {
    write(begin, data);
    k += team.size;
    data = word();
  }
  sync_team(team);
  return Usual::done;
}

/// On a GPU what this takes is instructions, one behind the other: so the usual cases have as few as can be, and no
/// call in between, across which registers, and the way back, would have to be saved.
MPIX_DEV_CALL Usual put_as_usual(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                 const void* local, int tag) {
  const Team team = team_of(c);
  sync_team(team);
  Aim& aim = aim_of(c, window, target);
  const char* const from = static_cast<const char*>(local);
  char* const to = aim.base + displacement;
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  const std::uint32_t owed = c.has_put | c.unfenced, most_bytes = c.p.inline_bytes;
  // Not one after another: each takes a load.
  const bool is_right =
      is_aimed_at(aim, window, target, displacement, bytes) & (local != nullptr) & (tag >= 0) & (to != from);
  const bool in_words = is_right & (bytes <= most_bytes) & (aim.is_noted | (bytes == 0)) & (owed == 0) &
                        (((reinterpret_cast<std::uintptr_t>(local) | bytes) & 7) == 0);
  if (in_words)
    return put_words(c, team, aim, what, how_in_lines(bytes, displacement), static_cast<const std::uint64_t*>(local),
                     static_cast<std::uint32_t>(bytes) / 8);
  if (is_right & (bytes > most_bytes) & (bytes <= most_quads_bytes) && is_in_quads(to, from, bytes))
    return put_quads(c, team, aim, what, to, from, bytes);
  return Usual::other;
}
#endif

}  // namespace dev
}  // namespace mpix
