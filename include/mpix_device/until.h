// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wait.h"

/// How a rank waits for anything but notifications: it reads its lanes meanwhile.
namespace mpix {
namespace dev {

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
    if (in_first_warp(team)) end_wait(c, wait, first_warp_of(team));
    (void)fail(c, call, Result::synchronization, c.query.window, c.query.source);
    if (team.index == 0) give_up(c, Result::synchronization);
    sync_team(team);
    return false;
  }
  if (in_first_warp(team)) end_wait(c, wait, first_warp_of(team));
  return true;
}

}  // namespace dev
}  // namespace mpix
