// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "wire/rail.h"

namespace mpix {

/// Rounds on a rail of many nodes (wire/rail.h), as the rank of one of them sees them: nodes stand in a circle, and in
/// each round a rank tells up to `fan` ranks before it what it knows; so that it knows of fan + 1 times as many
/// behind it then, and of all after the last round. What one rank has for all takes a tree, with as many levels.
class RailRounds {
 public:
  /// On 1,024 nodes 1 sends 10 messages in 10 rounds, 3 15 in 5, 7 28 in 4. A round takes as long as some messages.
  static constexpr std::uint32_t fan = 3;

  RailRounds(std::uint32_t nodes, std::uint32_t node) : nodes_(nodes), node_(node) {
    for (std::uint32_t known = 1; known < nodes; known *= fan + 1) knows_.push_back(known);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(knows_.size()); }

  /// One that it tells, or hears from, in a round.
  struct Other {
    std::uint32_t node;
    std::uint32_t blocks;  ///< of so many nodes, from that of the teller on
  };
  bool has(std::uint32_t round, std::uint32_t i) const { return distance(round, i) < nodes_; }
  Other to(std::uint32_t round, std::uint32_t i) const {
    return {(node_ + nodes_ - distance(round, i)) % nodes_, blocks(round, i)};
  }
  Other from(std::uint32_t round, std::uint32_t i) const {
    return {(node_ + distance(round, i)) % nodes_, blocks(round, i)};
  }

  /// Of the words that a rank is told, in front of what is gathered.
  std::uint64_t told_bytes() const { return (std::uint64_t{2} * count() * fan * sizeof(RailTold) + 63) / 64 * 64; }

  /// In the tree of a root: node numbers.
  std::uint32_t parent(std::uint32_t root) const;
  /// Those with most below them first.
  std::vector<std::uint32_t> children(std::uint32_t root) const;

 private:
  std::uint32_t distance(std::uint32_t round, std::uint32_t i) const { return (i + 1) * knows_[round]; }
  std::uint32_t blocks(std::uint32_t round, std::uint32_t i) const {
    const std::uint32_t left = nodes_ - distance(round, i);
    return left < knows_[round] ? left : knows_[round];
  }
  std::uint32_t from_root(std::uint32_t root) const { return (node_ + nodes_ - root) % nodes_; }

  const std::uint32_t nodes_, node_;
  std::vector<std::uint32_t> knows_;  ///< by round: before it, of so many nodes
};

}  // namespace mpix
