// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "base/settings.h"

namespace mpix {

/// An epoch's request for triggered operations, and what there is.
struct Demand {
  std::size_t wanted;  ///< by the whole epoch
  std::size_t total;   ///< the budget
  std::size_t free;
  std::size_t of_window;  ///< of the data of the window's earlier epochs; for policies that look at it
  bool refused = false;   ///< it has asked before, and waits

  /// An epoch larger than the budget works through it in stages.
  std::size_t needed() const { return wanted < total ? wanted : total; }
};

/// What happens to an epoch that asks for triggered operations.
class ThrottlePolicy {
 public:
  virtual ~ThrottlePolicy() = default;
  virtual const char* name() const = 0;
  virtual bool looks_at_window() const { return false; }
  /// It would rather fail than wait, so every operation that is over has to count.
  virtual bool refuses() const { return false; }
  /// Whether it may have what it needs now; if not it asks again later. Throws Error where it shall not wait.
  virtual bool admits(const Demand& demand) const = 0;
  /// Whether it is worth waking who sleeps for that.
  virtual bool worth_waking(const Demand& demand) const { return admits(demand); }
};

/// `cores_to_spare`: a thread that waits and one that makes room for it do not take each other's core.
std::unique_ptr<ThrottlePolicy> make_throttle_policy(Throttle throttle, bool cores_to_spare);

}  // namespace mpix
