// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/random.h"
#include "support/streams.h"

namespace interference {

TEST_FN std::uint64_t word_of(std::uint64_t number, std::uint64_t i) { return test::mix((number << 32) + i); }

/// Of one launch, in memory of the device, zero when it begins.
struct Grid {
  std::uint64_t arrived;  ///< blocks, of all rounds
  std::uint64_t last;     ///< the round after which the blocks end; 0: not yet known
};

/// Writes the message, says so, and goes on to write until it is told to end; all blocks meet after each pass.
struct Writer {
  MPIX_Dev_channel channel;
  std::uint64_t *message, *other;  ///< what is written once; what is written afterwards, or null: nothing
  std::uint64_t words, number;
  Grid* grid;

  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    write(team, message);
    meet(team, 1);
    if (team.block == 0 && MPIX_Dev_block_flag_set(team, channel, 0, number) != MPIX_DEV_DONE) return;
    if (!other) return;
    for (std::uint64_t round = 2;; ++round) {
      write(team, other);
      if (team.block == 0 && team.thread == 0) look(round);
      meet(team, round);
      const std::uint64_t last = mpix::load_relaxed(&grid->last);
      // A later round than this: a fast block has gone on already, and this one has to follow.
      if (last != 0 && last <= round) return;
    }
  }

 private:
  MPIX_DEV_METHOD void write(const MPIX_Dev_team& team, std::uint64_t* to) const {
    const std::uint64_t threads = std::uint64_t{team.blocks} * team.threads;
    for (std::uint64_t i = std::uint64_t{team.block} * team.threads + team.thread; i < words; i += threads)
      mpix::store_after_loads(to + i, word_of(number, i));
  }
  MPIX_DEV_METHOD void look(std::uint64_t round) const {
    int over = 0;
    if (MPIX_Dev_flag_test(channel, 0, number, &over) != MPIX_DEV_DONE) over = 1;
    if (over && mpix::load_relaxed(&grid->last) == 0) mpix::store_release(&grid->last, round);
  }
  /// What was written before is seen by who knows that all have met.
  MPIX_DEV_METHOD void meet(const MPIX_Dev_team& team, std::uint64_t round) const {
    MPIX_Dev_sync(team);
    if (team.thread == 0) {
      mpix::fence_stores();
      (void)mpix::fetch_add_on_device(&grid->arrived, 1);
      while (mpix::load_acquire(&grid->arrived) < round * team.blocks) support::let_other_blocks_run();
    }
    MPIX_Dev_sync(team);
  }
};

}  // namespace interference
