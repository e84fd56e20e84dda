// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>

namespace mpix {

/// The counters of a window, in the order in which they are told: COUNTER(name, whose, told, before, after). They are
/// of the window, or of the `process`, then no sum of epochs; told always, or where another, or the counter itself, is
/// not 0; with words before and after the number. All else follows from this list but for MPIX_Win_stats (mpix.h),
/// which has the same names in the order in which it grew: a counter that stands in one of the two alone does not
/// compile.
#define MPIX_COUNTERS(COUNTER)                                                                 \
  COUNTER(exposure_epochs, window, always, "", " exposure epochs")                             \
  COUNTER(access_epochs, window, always, ", ", " access epochs")                               \
  COUNTER(puts, window, always, ", ", " puts")                                                 \
  COUNTER(bytes_mailbox, window, always, "; bytes: mailbox ", "")                              \
  COUNTER(bytes_direct, window, always, ", direct ", "")                                       \
  COUNTER(bytes_staged, window, always, ", staged ", "")                                       \
  COUNTER(bytes_copied, window, always, ", copy engine ", "")                                  \
  COUNTER(plans_built, window, always, "; plans: ", " built")                                  \
  COUNTER(plans_reused, window, always, ", ", " reused")                                       \
  COUNTER(posts_raised, window, posts_raised, "; posts that did not wait for a call: ", "")    \
  COUNTER(network_operations, window, network_operations, "; to other nodes: ", " operations") \
  COUNTER(bytes_network_eager, window, network_operations, ", bytes: eager ", "")              \
  COUNTER(bytes_network_direct, window, network_operations, ", direct ", "")                   \
  COUNTER(network_peak, process, network_operations, "; at most ", "")                         \
  COUNTER(network_budget, process, network_operations, " of ", " queued")                      \
  COUNTER(throttle_waits, window, network_operations, ", ", " waits")                          \
  COUNTER(throttle_wait_ns, window, network_operations, " of ", " ns in all")

/// Advanced where epochs are enqueued. mpix.h says what each counts.
struct Stats {
#define COUNTER(name, whose, told, before, after) std::uint64_t name = 0;
  MPIX_COUNTERS(COUNTER)
#undef COUNTER

  /// What is of the process stays as it is.
  void add(const Stats& other);
};

std::string describe(const Stats& stats);

}  // namespace mpix
