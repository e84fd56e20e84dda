// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/stall.h"

#include <atomic>
#include <cstdio>
#include <new>

#include "base/log.h"

namespace mpix {

namespace {
constexpr const char* still_waiting = "; still waiting (MPIX_TIMEOUT sets when this is reported)";
}

void StallReporter::report(LogLevel level, const char* call, const std::string& waiting, double seconds,
                           const char* what_follows) const {
  char duration[32];
  std::snprintf(duration, sizeof duration, "%.1f s", seconds);
  log(level,
      std::string(call) + " on window '" + window_ + "' has waited for " + duration + ": " + waiting + what_follows);
}

void StallReporter::late(Call call, const std::string& waiting, double seconds) {
  std::lock_guard<std::mutex> hold(mutex_);
  report(LogLevel::warn, name_of(call), waiting, seconds, still_waiting);
}

void StallReporter::blocked(const char* call, const std::string& why, double seconds) {
  std::lock_guard<std::mutex> hold(mutex_);
  report(LogLevel::error, call, why, seconds, still_waiting);
}

bool StallReporter::stalled(Call call, const std::string& waiting, double seconds) {
  const std::string suspicion = suspicion_ ? suspicion_(call) : "";
  std::lock_guard<std::mutex> hold(mutex_);
  report(LogLevel::error, name_of(call), suspicion.empty() ? waiting : without_questions(waiting) + "; " + suspicion,
         seconds, fail_ ? "; the wait is released and the window is broken (MPIX_ON_TIMEOUT=error)" : still_waiting);
  static std::atomic<bool> advised{false};
  if (!advice_.empty() && !advised.exchange(true)) log(LogLevel::error, advice_);
  if (!fail_) return false;
  release("a wait of an earlier epoch was released by its time-out (MPIX_TIMEOUT): " + waiting);
  return true;
}

void StallReporter::failed(Call call, const std::string& why) {
  std::lock_guard<std::mutex> hold(mutex_);
  try {
    log(LogLevel::error,
        std::string(name_of(call)) + " on window '" + window_ + "': " + why + "; the window is broken");
  } catch (const std::bad_alloc&) {
    // Told by the next call.
  }
  release(why);
}

void StallReporter::release(const std::string& cause) {
  try {
    if (cause_.empty()) cause_ = cause;
  } catch (const std::bad_alloc&) {
    cause_ = "out of memory";  // as short as needs none
  }
  __atomic_store_n(&words_->released, 1, __ATOMIC_RELEASE);
}

std::string StallReporter::cause() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return cause_;
}

void StallReporter::rename(const std::string& window) {
  std::lock_guard<std::mutex> hold(mutex_);
  window_ = window;
}

}  // namespace mpix
