// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_halo.h>

#include <cstdint>

#include "channel_calls.h"
#include "halo.h"

/// A halo's exchanges inside kernels of the program, which so live for many of them:
///
///     __global__ void solve(MPIX_Dev_halo halo, Field field, int steps) {      // all blocks are resident
///       const MPIX_Dev_team team = MPIX_Dev_team_this();
///       uint64_t step = MPIX_Dev_halo_begin(team, halo);
///       for (int i = 0; i < steps; ++i) {
///         compute(team, field);
///         MPIX_Dev_halo_sync(team, halo);                     // all blocks have filled the send boxes
///         MPIX_Dev_halo_exchange(team, halo, ++step);
///         MPIX_Dev_halo_sync(team, halo);                     // all receive boxes are filled
///       }
///     }
///
/// Calls are made by all threads of a block together, before MPIX_Halo_free. They return 0 (MPIX_DEV_DONE),
/// MPIX_DEV_RELEASED (the halo is broken: nobody waits any more) or MPIX_DEV_ARG.

namespace mpix {

/// The threads of a block of the program's.
struct TeamCrew {
  const MPIX_Dev_team& team;
  MPIX_DEV_METHOD std::uint32_t index() const { return team.thread; }
  MPIX_DEV_METHOD std::uint32_t size() const { return team.threads; }
  MPIX_DEV_METHOD void meet() const { MPIX_Dev_sync(team); }
  MPIX_DEV_METHOD bool all(bool well) const {
#if MPIX_ON_DEVICE
    return __syncthreads_and(well ? 1 : 0) != 0;
#else
    return well;
#endif
  }
  template <class What>
  MPIX_DEV_METHOD bool together(What what) const {
    return dev::by_first_thread(team, [&] { return dev::BlockBox{what() ? 1 : 0, 0}; }).result != 0;
  }
};

MPIX_DEV_FN int halo_result(bool well) { return well ? MPIX_DEV_DONE : MPIX_DEV_RELEASED; }
MPIX_DEV_FN HaloRunner runner_of(const MPIX_Dev_team& team) {
  return HaloRunner{team.block, team.blocks, 0, 0, 0, false};
}

}  // namespace mpix

/* All blocks of the grid, first: how many exchanges there were so far. The next one is that + 1. */
MPIX_DEV_FN uint64_t MPIX_Dev_halo_begin(const MPIX_Dev_team& team, const MPIX_Dev_halo& halo) {
  if (halo.abi != MPIX_DEV_HALO_ABI) return 0;
  const uint64_t step = mpix::exchanges_over(halo);
  (void)mpix::meet_blocks(halo, team.block, team.blocks, mpix::TeamCrew{team});
  return step;
}
/* All blocks of the grid, from number 0 on, have come here, and see what the others wrote before: that of the halo, or
 * of the program. */
MPIX_DEV_FN int MPIX_Dev_halo_sync(const MPIX_Dev_team& team, const MPIX_Dev_halo& halo) {
  if (halo.abi != MPIX_DEV_HALO_ABI) return MPIX_DEV_RELEASED;
  return mpix::halo_result(mpix::meet_blocks(halo, team.block, team.blocks, mpix::TeamCrew{team}));
}
/* All blocks of the grid: exchange `step`. This block's share of it is over, not that of the others. */
MPIX_DEV_FN int MPIX_Dev_halo_exchange(const MPIX_Dev_team& team, const MPIX_Dev_halo& halo, uint64_t step) {
  if (halo.abi != MPIX_DEV_HALO_ABI) return MPIX_DEV_RELEASED;
  return mpix::halo_result(
      mpix::run_halo_parts(halo, 0, halo.parts, step, mpix::runner_of(team), mpix::TeamCrew{team}));
}
/* One block, in place of the former: pack message `message` of exchange `step`, and have it sent; wait for it, and
 * unpack it. Each message is sent once and received once an exchange, by any block; a block that waits for a message
 * must not have one to send that the other side waits for. */
MPIX_DEV_FN int MPIX_Dev_halo_send(const MPIX_Dev_team& team, const MPIX_Dev_halo& halo, unsigned message,
                                   uint64_t step) {
  if (halo.abi != MPIX_DEV_HALO_ABI) return MPIX_DEV_RELEASED;
  if (message >= halo.given) return MPIX_DEV_ARG;
  return mpix::halo_result(
      mpix::run_halo_message(halo, message, false, step, mpix::runner_of(team), mpix::TeamCrew{team}));
}
MPIX_DEV_FN int MPIX_Dev_halo_receive(const MPIX_Dev_team& team, const MPIX_Dev_halo& halo, unsigned message,
                                      uint64_t step) {
  if (halo.abi != MPIX_DEV_HALO_ABI) return MPIX_DEV_RELEASED;
  if (message >= halo.given) return MPIX_DEV_ARG;
  return mpix::halo_result(
      mpix::run_halo_message(halo, message, true, step, mpix::runner_of(team), mpix::TeamCrew{team}));
}
