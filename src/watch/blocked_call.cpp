// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/blocked_call.h"

#include <algorithm>
#include <chrono>

namespace mpix {

using std::chrono::milliseconds;

BlockedCall::BlockedCall(StallReporter& reporter, const char* call, Ordinary side)
    : reporter_(reporter),
      call_(call),
      side_(side),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reporter.patience()))) {
  begin_service(*this, interval());
}

Poller::Clock::duration BlockedCall::look(Clock::time_point now) {
  if (now - since_ - reported_ >= patience_) {
    reported_ = now - since_;
    reporter_.blocked(
        call_,
        side_ == Ordinary::access
            ? "an ordinary access epoch waits for its targets, and this rank has stream epochs on the window (are they "
              "late? was MPI_Win_start called without MPIX_MODE_STREAM?)"
            : "an ordinary exposure epoch waits for MPI_Win_complete of its origins, and this rank's access epochs are "
              "stream epochs (are they late? should it be MPIX_Win_post_stream and MPIX_Win_wait_stream?)",
        std::chrono::duration<double>(reported_).count());
  }
  return interval();
}

Poller::Clock::duration BlockedCall::interval() const {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

}  // namespace mpix
