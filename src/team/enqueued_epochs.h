// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "wire/program.h"

namespace mpix {

/// Where a window's counters will be when all that it has enqueued has run, by rank; but for graphs, which run as often
/// as the program likes. Guarded by the window's lock. Holds counts of ranks that epochs have named, and a few beside
/// each: most ranks of a large job are never named.
class EnqueuedEpochs {
 public:
  explicit EnqueuedEpochs(std::size_t ranks) : ranks_(ranks), chunks_((ranks + chunk - 1) / chunk) {}

  std::size_t ranks() const { return ranks_; }
  /// Before an epoch with these is enqueued: what comes after that cannot fail.
  void make_room(const std::vector<int>& ranks) {
    for (int rank : ranks)
      if (auto& counts = chunks_[chunk_of(rank)]; !counts) counts = std::make_unique<Counts>();
  }
  const EpochCounts& with(int rank) const {
    static constexpr EpochCounts none{};
    const auto& counts = chunks_[chunk_of(rank)];
    return counts ? (*counts)[static_cast<std::size_t>(rank) % chunk] : none;
  }
  void add_sent(const std::vector<int>& targets) noexcept { add(targets, &EpochCounts::sent); }
  void add_opened(const std::vector<int>& origins) noexcept { add(origins, &EpochCounts::opened); }
  void add_closed(const std::vector<int>& origins) noexcept { add(origins, &EpochCounts::closed); }

 private:
  static constexpr std::size_t chunk = 16;
  using Counts = std::array<EpochCounts, chunk>;

  static std::size_t chunk_of(int rank) { return static_cast<std::size_t>(rank) / chunk; }
  void add(const std::vector<int>& ranks, std::uint64_t EpochCounts::*count) noexcept {
    for (int rank : ranks) ++((*chunks_[chunk_of(rank)])[static_cast<std::size_t>(rank) % chunk].*count);
  }

  const std::size_t ranks_;
  std::vector<std::unique_ptr<Counts>> chunks_;
};

}  // namespace mpix
