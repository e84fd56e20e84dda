// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wait_as_usual.h"

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
    move_found(c, team, part.base + displacement_of(how));
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

#if MPIX_ON_DEVICE
/// The team: a wait that has come so far.
MPIX_DEV_CALL Result wait_further(Ctx& c, int window, int source, int tag, int count, Status* status, Step step) {
  int left = count;
  while (step != Step::over) {
    left = static_cast<int>(c.needs);
    if (step == Step::none) {
      if (c.state.live == 0 || !is_usual(c, team_of(c), window, source, tag, left, true)) break;
      left = take_older(c, Query{window, source, tag}, status != nullptr, left);
      if (left == 0) {
        if (status) *status = c.status;
        return Result::ok;
      }
    } else {
      if (step == Step::unusual || !set_found_aside(c)) break;
    }
    step = wait_as_usual(c, window, source, tag, left, status, true);
    if (step == Step::none) {
      left = static_cast<int>(c.needs);
      break;
    }
  }
  return step == Step::over ? Result::ok : wait_in_any_case(c, window, source, tag, left, count, status);
}
#endif

/// `status`: of the last one; null: nobody wants to know.
MPIX_DEV_FN Result wait(Ctx& c, int window, int source, int tag, int count, Status* status) {
#if MPIX_ON_DEVICE
  const Step step = wait_as_usual(c, window, source, tag, count, status, false);
  return step == Step::over ? Result::ok : wait_further(c, window, source, tag, count, status, step);
#else
  return wait_in_any_case(c, window, source, tag, count, count, status);
#endif
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
