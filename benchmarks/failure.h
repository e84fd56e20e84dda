// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>

#include "mpix_device/memory.h"
#include "support/channel.h"

namespace benchmark {

/// Where a kernel tells what a call of it returned, if it failed: in memory of the host.
class Failure {
 public:
  Failure() : word_(static_cast<std::uint64_t*>(support::allocate_pinned(64))) {}
  ~Failure() { support::release_pinned(word_); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  std::uint64_t* word() const { return word_; }
  void check() const {
    const std::uint64_t result = mpix::load_acquire(word_);
    if (result == 0) return;
    std::fprintf(stderr, "a call in the kernel returned %d\n", static_cast<int>(result));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  std::uint64_t* const word_;
};
MPIX_DEV_FN void tell_failure(const MPIX_Dev_team& team, std::uint64_t* word, int result) {
  if (team.thread == 0) mpix::store_release(word, static_cast<std::uint64_t>(result));
}

}  // namespace benchmark
