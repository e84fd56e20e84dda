// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>

namespace mpix {

/// Something that wants to be looked at now and then.
class Watched {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Watched() = default;
  /// Called by the watchdog's thread; does not throw.
  virtual void look(Clock::time_point now) noexcept = 0;
  /// Until the next look.
  virtual Clock::duration interval() const noexcept = 0;
};

/// The one thread of a process that looks at streams which cannot tell by themselves that they wait: there only
/// while something is watched, and asleep as a rule. Not for host streams, whose threads look themselves.
void watch(Watched& watched);
/// Returns when no look is under way any more.
void forget(Watched& watched);

}  // namespace mpix
