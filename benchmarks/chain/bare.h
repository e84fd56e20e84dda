// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <memory>

/// A triggered chain as a program would write it that knows nothing but libfabric: a payload write, triggered by a
/// counter that this process adds to, and a signal triggered by its completion. Between rank 0 and rank 1.
class BareChain {
 public:
  /// `provider_thread`: the provider makes progress by its own thread (its default); else who polls does it.
  BareChain(std::size_t bytes, bool provider_thread);
  ~BareChain();

  /// µs from a doorbell to the signal being seen: half of a round trip, the median of so many.
  double median(int rounds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
