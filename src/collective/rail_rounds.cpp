// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/rail_rounds.h"

namespace mpix {

/// In digits of base fan + 1, counted from the root: without its lowest digit that is not 0.
std::uint32_t RailRounds::parent(std::uint32_t root) const {
  const std::uint32_t place = from_root(root);
  for (const std::uint32_t unit : knows_)
    if (const std::uint32_t digit = place / unit % (fan + 1)) return (place - digit * unit + root) % nodes_;
  return root;
}

std::vector<std::uint32_t> RailRounds::children(std::uint32_t root) const {
  const std::uint32_t place = from_root(root);
  std::vector<std::uint32_t> found;
  for (std::uint32_t digit = count(); digit-- > 0;) {
    const std::uint32_t unit = knows_[digit];
    if (place % (unit * (fan + 1)) != 0) continue;
    for (std::uint32_t i = 1; i <= fan && place + i * unit < nodes_; ++i)
      found.push_back((place + i * unit + root) % nodes_);
  }
  return found;
}

}  // namespace mpix
