// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/blocked_call.h"

#include <algorithm>
#include <chrono>

namespace mpix {

using std::chrono::milliseconds;

BlockedCall::BlockedCall(StallReporter& reporter, const char* call)
    : reporter_(reporter),
      call_(call),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reporter.patience()))) {
  begin_service(*this, interval());
}

Poller::Clock::duration BlockedCall::look(Clock::time_point now) {
  if (now - since_ - reported_ >= patience_) {
    reported_ = now - since_;
    reporter_.blocked(
        call_,
        "an ordinary access epoch waits for MPI_Win_post of its targets, and this rank exposes the window in "
        "a stream epoch: was MPI_Win_start called without MPIX_MODE_STREAM?",
        std::chrono::duration<double>(reported_).count());
  }
  return interval();
}

Poller::Clock::duration BlockedCall::interval() const {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

}  // namespace mpix
