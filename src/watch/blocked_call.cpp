// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/blocked_call.h"

#include <algorithm>
#include <chrono>

namespace mpix {

using std::chrono::milliseconds;

BlockedCall::BlockedCall(StallReporter& reporter, const char* call, const char* why)
    : reporter_(reporter),
      call_(call),
      why_(why),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reporter.patience()))) {
  begin_service(*this, interval());
}

Poller::Clock::duration BlockedCall::look(Clock::time_point now) {
  if (now - since_ - reported_ >= patience_) {
    reported_ = now - since_;
    reporter_.blocked(call_, why_, std::chrono::duration<double>(reported_).count());
  }
  return interval();
}

Poller::Clock::duration BlockedCall::interval() const {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

}  // namespace mpix
