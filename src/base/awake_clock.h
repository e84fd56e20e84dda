// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>

namespace mpix {

/// Goes on while the process runs, and stands while it is stopped: by a signal, a debugger, a batch system that
/// suspends jobs, a virtual machine that moves. Time-outs are measured by it, as the peers of a job stop together: what
/// has not come when it goes on is not late.
///
/// The service knows when it meant to look again; when that is long past, the process has been stopped, or has got no
/// core. So what other threads compare with the clock just then may be late by the stop.
class AwakeClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<AwakeClock>;
  static constexpr bool is_steady = false;  // it goes back by what turns out to have been a stop

  static time_point now() noexcept {
    return time_point(std::chrono::steady_clock::now().time_since_epoch() -
                      duration(stopped_.load(std::memory_order_relaxed)));
  }
  static void was_stopped_for(duration time) noexcept { stopped_.fetch_add(time.count(), std::memory_order_relaxed); }

 private:
  static std::atomic<rep> stopped_;
};

}  // namespace mpix
