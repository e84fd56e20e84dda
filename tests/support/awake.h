// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>

namespace test {

/// A clock that stands while the machine does: virtual ones were seen to stall for 16 s. It counts at most 0.1 s of
/// each of its naps, so that it is never fast, and slow on a machine that is too busy to wake it.
class AwakeClock {
 public:
  using Watch = std::function<void(double seconds)>;
  /// `watch` is called after each nap, by the clock's thread.
  explicit AwakeClock(Watch watch = nullptr) : watch_(std::move(watch)), thread_([this] { run(); }) {}
  ~AwakeClock() {
    stop_ = true;
    thread_.join();
  }
  AwakeClock(const AwakeClock&) = delete;
  AwakeClock& operator=(const AwakeClock&) = delete;

  double seconds() const { return seconds_; }

 private:
  void run() {
    using Clock = std::chrono::steady_clock;
    for (auto last = Clock::now(); !stop_;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto now = Clock::now();
      seconds_ = seconds_ + std::min(0.1, std::chrono::duration<double>(now - last).count());
      last = now;
      if (watch_) watch_(seconds_);
    }
  }

  const Watch watch_;
  std::atomic<double> seconds_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Ends the process, which says what it was doing, when it has been awake for `limit` seconds.
inline AwakeClock::Watch ends_after(double limit, const std::atomic<const char*>* doing) {
  return [=](double seconds) {
    if (seconds < limit) return;
    std::printf("FAILED: hangs at %s\n", doing->load());
    std::fflush(stdout);
    _exit(3);
  };
}

}  // namespace test
