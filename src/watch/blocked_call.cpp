// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/blocked_call.h"

#include <algorithm>
#include <exception>

namespace mpix {

using std::chrono::milliseconds;

BlockedCall::BlockedCall(StallReporter& reporter, const char* call)
    : reporter_(reporter),
      call_(call),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reporter.patience()))) {
  watch(*this);
}

Watched::Clock::duration BlockedCall::interval() const noexcept {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

void BlockedCall::look(Clock::time_point now) noexcept {
  if (now - since_ - reported_ < patience_) return;
  reported_ = now - since_;
  try {
    reporter_.blocked(
        call_,
        "an ordinary access epoch waits for MPI_Win_post of its targets, and this rank exposes the window in "
        "a stream epoch: was MPI_Win_start called without MPIX_MODE_STREAM?",
        std::chrono::duration<double>(reported_).count());
  } catch (const std::exception&) {  // no memory for a text
  }
}

}  // namespace mpix
