// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/program.h"

namespace mpix {

/// Where a window's counters will be when all that it has enqueued has run, by rank; but for graphs, which run as often
/// as the program likes. Guarded by the window's lock.
class EnqueuedEpochs {
 public:
  explicit EnqueuedEpochs(std::size_t ranks) : counts_(ranks) {}

  std::size_t ranks() const { return counts_.size(); }
  const EpochCounts& with(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  void add_sent(const std::vector<int>& targets) { add(targets, &EpochCounts::sent); }
  void add_opened(const std::vector<int>& origins) { add(origins, &EpochCounts::opened); }
  void add_closed(const std::vector<int>& origins) { add(origins, &EpochCounts::closed); }

 private:
  void add(const std::vector<int>& ranks, std::uint64_t EpochCounts::*count) {
    for (int rank : ranks) ++(counts_[static_cast<std::size_t>(rank)].*count);
  }

  std::vector<EpochCounts> counts_;
};

}  // namespace mpix
