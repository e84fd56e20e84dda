// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/blocked_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

void BlockedCalls::begin(StallReporter& reporter, const char* call, const char* why) {
  end();
  auto one = std::make_unique<BlockedCall>(reporter, call, why);
  const std::lock_guard<std::mutex> hold(mutex_);
  calls_[std::this_thread::get_id()] = std::move(one);
  has_any_ = true;
}

void BlockedCalls::end() noexcept {
  if (!has_any_) return;
  std::unique_ptr<BlockedCall> over;  // it ends without the lock: that waits for the service
  const std::lock_guard<std::mutex> hold(mutex_);
  const auto own = calls_.find(std::this_thread::get_id());
  if (own == calls_.end()) return;
  over = std::move(own->second);
  calls_.erase(own);
  has_any_ = !calls_.empty();
}

Poller::Clock::duration BlockedCall::interval() const {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

}  // namespace mpix
