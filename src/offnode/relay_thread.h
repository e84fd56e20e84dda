// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "net/operation_budget.h"

namespace mpix {

/// Something that has to be looked at all the time.
class Relayed {
 public:
  virtual ~Relayed() = default;
  /// Called by the relay's thread. False when there was nothing to do.
  virtual bool look() noexcept = 0;
  virtual OperationBudget& budget() = 0;
};

/// The one thread of a process that relays, and lets the networks work meanwhile: there only while something is
/// relayed. It polls while things move, giving its core away after each round; when they do not it naps, longer and
/// longer.
void add_to_relay(Relayed& relayed);
/// Returns when no look is under way any more.
void remove_from_relay(Relayed& relayed);
/// There is something to do soon.
void wake_relay();

}  // namespace mpix
