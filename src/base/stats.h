// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>

namespace mpix {

/// Counters of one window, advanced where epochs are enqueued.
struct Stats {
  std::uint64_t exposure_epochs = 0;
  std::uint64_t access_epochs = 0;
  std::uint64_t posts_raised = 0;  ///< free posts that did not wait for the window's next call
  std::uint64_t puts = 0;
  std::uint64_t bytes_mailbox = 0;
  std::uint64_t bytes_direct = 0;
  std::uint64_t bytes_staged = 0;
  std::uint64_t bytes_copied = 0;  ///< by the copy engine
  std::uint64_t plans_built = 0;
  std::uint64_t plans_reused = 0;

  // To other nodes.
  std::uint64_t bytes_network_eager = 0;   ///< gathered into messages
  std::uint64_t bytes_network_direct = 0;  ///< from the origin buffers
  std::uint64_t network_operations = 0;    ///< triggered operations: writes and signals
  std::uint64_t throttle_waits = 0;        ///< calls that waited for the budget
  std::uint64_t throttle_nanoseconds = 0;
  std::uint64_t network_operations_peak = 0;  ///< most that the process had queued at a time, so far
  std::uint64_t network_operations_budget = 0;

  void add(const Stats& other);
};

std::string describe(const Stats& stats);

}  // namespace mpix
