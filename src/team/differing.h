// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

namespace mpix {

/// "2 on rank 0, 4 on ranks 1 and 2": what each rank has. Empty where all have the same.
std::string differing(const std::vector<std::string>& by_rank);

/// The same, of what each rank's card says.
template <class Card, class TextOf>
std::string differing(const std::vector<Card>& cards, TextOf text_of) {
  std::vector<std::string> by_rank;
  for (const Card& card : cards) by_rank.push_back(text_of(card));
  return differing(by_rank);
}

}  // namespace mpix
