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
  std::uint64_t puts = 0;
  std::uint64_t bytes_mailbox = 0;
  std::uint64_t bytes_direct = 0;
  std::uint64_t bytes_staged = 0;
  std::uint64_t bytes_copied = 0;  ///< by the copy engine
  std::uint64_t plans_built = 0;
  std::uint64_t plans_reused = 0;

  void add(const Stats& other);
};

std::string describe(const Stats& stats);

}  // namespace mpix
