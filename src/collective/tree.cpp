// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/tree.h"

#include <algorithm>
#include <map>
#include <utility>

namespace mpix {
namespace {

/// Ranks in a star or a binomial tree; the first is its root.
class Level {
 public:
  Level(std::vector<std::uint32_t> ranks, bool is_binomial) : ranks_(std::move(ranks)), is_binomial_(is_binomial) {}

  bool has(std::uint32_t rank) const { return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end(); }
  std::uint32_t root() const { return ranks_[0]; }
  std::uint32_t parent(std::uint32_t rank) const {
    const std::size_t index = index_of(rank);
    return ranks_[is_binomial_ ? index & (index - 1) : 0];
  }
  std::vector<std::uint32_t> children(std::uint32_t rank) const {
    const std::size_t index = index_of(rank);
    std::vector<std::uint32_t> children;
    if (!is_binomial_) {
      if (index == 0) children.assign(ranks_.begin() + 1, ranks_.end());
      return children;
    }
    for (std::size_t distance = 1; index + distance < ranks_.size() && (index & distance) == 0; distance *= 2)
      children.push_back(ranks_[index + distance]);
    return children;
  }
  bool is_binomial() const { return is_binomial_; }

 private:
  std::size_t index_of(std::uint32_t rank) const {
    return static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }

  std::vector<std::uint32_t> ranks_;
  bool is_binomial_;
};

class Tree {
 public:
  Tree(TreeShape shape, const std::vector<std::uint64_t>& gpus, std::uint32_t root) : between_({}, false) {
    std::map<std::uint64_t, std::vector<std::uint32_t>> of_gpus;
    for (std::uint32_t rank = 0; rank < gpus.size(); ++rank) {
      std::vector<std::uint32_t>& ranks = of_gpus[gpus[rank]];
      ranks.insert(rank == root ? ranks.begin() : ranks.end(), rank);
    }
    std::vector<std::uint32_t> leaders;
    for (auto& [gpu, ranks] : of_gpus) {
      leaders.push_back(ranks[0]);
      on_gpu_.emplace_back(std::move(ranks), shape.binomial_on_gpu);
    }
    std::sort(leaders.begin(), leaders.end(),
              [root](std::uint32_t a, std::uint32_t b) { return a != b && (a == root || (b != root && a < b)); });
    between_ = Level(std::move(leaders), shape.binomial_between);
  }

  TreePlace place(std::uint32_t me) const {
    TreePlace place{};
    const Level& mine = level_of(me);
    place.parent = static_cast<std::uint8_t>(me != mine.root()       ? mine.parent(me)
                                             : me != between_.root() ? between_.parent(me)
                                                                     : me);
    std::vector<std::uint32_t> operands = mine.children(me);
    operands.insert(operands.begin(), me);
    // What a star combines are the operands of single ranks, whose order is that of all other ways.
    if (!mine.is_binomial()) std::sort(operands.begin(), operands.end());
    if (me == mine.root())
      for (const std::uint32_t leader : between_.children(me)) operands.push_back(leader);
    for (const std::uint32_t rank : operands)
      place.operands[place.count++] =
          static_cast<std::uint8_t>(rank | (rank != me && has_children(rank) ? TreePlace::combines : 0));
    return place;
  }

 private:
  const Level& level_of(std::uint32_t rank) const {
    return *std::find_if(on_gpu_.begin(), on_gpu_.end(), [rank](const Level& level) { return level.has(rank); });
  }
  bool has_children(std::uint32_t rank) const {
    const Level& level = level_of(rank);
    return !level.children(rank).empty() || (rank == level.root() && !between_.children(rank).empty());
  }

  std::vector<Level> on_gpu_;
  Level between_;
};

}  // namespace

TreePlace place_in_tree(TreeShape shape, const std::vector<std::uint64_t>& gpus, std::uint32_t me, std::uint32_t root) {
  return Tree(shape, gpus, root).place(me);
}

}  // namespace mpix
