// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/differing.h"

#include <algorithm>

namespace mpix {
namespace {

/// "rank 1", "ranks 1 and 2", "ranks 1, 2, 3 and 60 others"
std::string ranks_text(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 4;
  const std::size_t named = ranks.size() > most ? most - 1 : ranks.size();
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return named == ranks.size() ? text : text + " and " + std::to_string(ranks.size() - named) + " others";
}

}  // namespace

std::string differing(const std::vector<std::string>& by_rank) {
  constexpr std::size_t most_values = 3;
  std::vector<std::string> values;
  for (const std::string& value : by_rank)
    if (values.size() <= most_values && std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(value);
  if (values.size() < 2) return "";
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), most_values); ++i) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
      if (by_rank[rank] == values[i]) ranks.push_back(rank);
    text += (i == 0 ? "" : ", ") + values[i] + " on " + ranks_text(ranks);
  }
  return values.size() > most_values ? text + ", …" : text;
}

}  // namespace mpix
