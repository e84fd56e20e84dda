// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>

#include "mpix_device/memory.h"
#include "support/channel.h"

/// The same loops by hand, without the library: what a machine can do. Each block has a ring of lines in memory of the
/// host, and one word that says how far the host has come.
namespace bare {

constexpr std::uint32_t depth = 64;

struct Words {
  mpix::Line* ring;     ///< by block and place
  std::uint64_t* back;  ///< by block, 16 words apart
};

MPIX_DEV_FN std::uint64_t volatile_word(const std::uint64_t* p) {
#if MPIX_ON_DEVICE
  return *static_cast<const volatile std::uint64_t*>(p);
#else
  return mpix::load_acquire(p);
#endif
}

/// Threads that are blocks may have to share cores.
MPIX_FN void wait_a_little() {
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  sched_yield();
#endif
}

/// One thread posts numbers: each when the one before is answered, or as long as there is room. `remembers`: it does
/// not look for room that it has seen; else it looks in front of each.
struct Post {
  Words words;
  std::uint64_t tasks;
  bool blocking, remembers;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    mpix::Line* const ring = words.ring + std::size_t{team.block} * depth;
    const std::uint64_t* const back = words.back + std::size_t{team.block} * 16;
    std::uint64_t seen = 0;
    for (std::uint64_t i = 1; i <= tasks; ++i) {
      const std::uint64_t needed = blocking ? i : i < depth ? 0 : i - depth + 1;
      if (!blocking)
        while (!(remembers && seen >= needed) && (seen = volatile_word(back)) < needed) wait_a_little();
      mpix::write_line(ring + i % depth, i, static_cast<std::uint32_t>(i));
      if (blocking)
        while (volatile_word(back) < needed) wait_a_little();
    }
  }
};

/// A block fills nothing, and says so with one system fence and a store: what publishing costs.
struct Fences {
  std::uint64_t* word;
  std::uint64_t times;
  bool fences;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    for (std::uint64_t i = 1; i <= times; ++i) {
      if (fences) mpix::fence_stores();
      mpix::store_after_loads(word + team.block * 16, i);
    }
  }
};

/// What one notification costs by itself: a read of the other side's word and a write of the own, while the other side
/// does the same. `state` becomes 1 when the kernel is there, and 2 when it is over.
struct ReadsAndWrites {
  const std::uint64_t* theirs;
  std::uint64_t *own, *state, *nanoseconds;
  std::uint64_t times;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    mpix::store_release(state, 1);
    const std::uint64_t begin = MPIX_Dev_clock();
    for (std::uint64_t i = 1; i <= times; ++i) mpix::store_release(own, i + (mpix::load_acquire(theirs) & 1));
    *nanoseconds = MPIX_Dev_clock() - begin;
    mpix::store_release(state, 2);
  }
};

/// The host takes up to 16 numbers of a block in a row.
inline void serve(const Words& words, std::uint32_t blocks, std::uint64_t tasks, std::uint64_t* next) {
  std::uint64_t left = std::uint64_t{blocks} * tasks;
  while (left > 0) {
    bool moved = false;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      int here = 0;
      std::uint64_t data = 0;
      while (here < 16 && next[b] <= tasks &&
             mpix::line_arrived(words.ring + std::size_t{b} * depth + next[b] % depth,
                                static_cast<std::uint32_t>(next[b]), &data)) {
        ++next[b];
        ++here;
        --left;
      }
      if (here == 0) continue;
      mpix::store_release(words.back + std::size_t{b} * 16, next[b] - 1);
      moved = true;
    }
    if (!moved) wait_a_little();
  }
}

}  // namespace bare
