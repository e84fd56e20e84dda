// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace mpix {

/// A value of each rank. Takes no memory by rank where all have the same, as windows have as a rule: their sizes and
/// displacement units are alike in jobs of any size.
template <class T>
class EachRank {
 public:
  /// `of(rank)` for each rank below `ranks`, which is not 0.
  template <class Of>
  EachRank(std::size_t ranks, Of of) {
    const T first = of(0);
    std::size_t same = 1;
    while (same < ranks && of(same) == first) ++same;
    values_.assign(same == ranks ? 1 : ranks, first);
    for (std::size_t rank = same; rank < ranks; ++rank) values_[rank] = of(rank);
  }
  const T& operator[](int rank) const { return values_[values_.size() == 1 ? 0 : static_cast<std::size_t>(rank)]; }

 private:
  std::vector<T> values_;
};

}  // namespace mpix
