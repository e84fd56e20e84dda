// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "team.h"

/// What a put knows of its target.
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

/// The thread for which it holds: lines of the lane that is aimed at.
MPIX_DEV_FN std::uint64_t take_lines(Ctx& c, bool takes, const Aim& aim, std::uint32_t lines) {
#if MPIX_ON_DEVICE
  if (c.p.ranks_here == 1) {  // nobody else takes any: no trip to memory
    if (!takes) return 0;
    Taken& taken = c.taken[static_cast<std::uint32_t>(aim.target) % aims];
    if (taken.target != aim.target) taken = Taken{aim.target, *aim.sent};
    const std::uint64_t begin = taken.lines;
    taken.lines = *aim.sent = begin + lines;
    return begin;
  }
#else
  (void)c;
#endif
  return fetch_add_where(takes, aim.sent, lines);
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

}  // namespace dev
}  // namespace mpix
