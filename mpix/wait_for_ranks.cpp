// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "wait_for_ranks.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace mpix {

WaitForRanks::WaitForRanks(std::string who, const char* as, double seconds)
    : who_(std::move(who)),
      as_(as),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
  if (seconds <= 0) return;
  try {
    begin_service(*this, patience_);
    begun_ = true;
  } catch (const Error&) {  // no thread: then it is not told
  }
}

WaitForRanks::~WaitForRanks() {
  if (begun_) end_service(*this);
}

Poller::Clock::duration WaitForRanks::look(Clock::time_point now) {
  if (now < due_) return due_ - now;  // woken for another's sake
  due_ = now + patience_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
  const std::string same = as_;
  log(LogLevel::warn, who_ + " waits for other ranks, for " + std::to_string(seconds) + " s: it is collective" +
                          (same.empty() ? "" : ", as " + same + " is"));
  return patience_;
}

}  // namespace mpix
