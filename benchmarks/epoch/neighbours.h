// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <vector>

namespace epoch {

/// `count` other ranks of a ring, so that each is the neighbour of its neighbours: as many ahead as behind; and, for an
/// odd count, the one opposite, which only a ring of even size has.
inline std::vector<int> neighbours_of(int rank, int size, int count) {
  std::vector<int> ranks;
  for (int step = 1; step <= count / 2; ++step) {
    ranks.push_back((rank + step) % size);
    ranks.push_back((rank - step + size) % size);
  }
  if (count % 2 == 1) ranks.push_back((rank + size / 2) % size);
  return ranks;
}

/// What of `wanted` so many ranks can have, or the next higher.
inline std::vector<int> possible_counts(const std::vector<int>& wanted, int size) {
  std::vector<int> counts;
  for (int count : wanted) {
    count = std::min(count, size - 1);
    if (size % 2 == 1) count += count % 2;
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

}  // namespace epoch
