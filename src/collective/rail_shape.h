// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "team/team.h"
#include "wire/rail.h"

namespace mpix {

/// Who is whose partner between nodes (wire/rail.h), as one rank sees it; computed alike for all ranks.
class RailShape {
 public:
  RailShape(const Team& team, int rank);

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(of_rank_.size()); }
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(node_ranks_.size()); }
  std::uint32_t node() const { return node_; }
  std::uint32_t node_of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)].node; }
  /// Its number on its node.
  std::uint32_t local_of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)].local; }
  /// In the order of their lowest ranks; each in its order.
  const std::vector<int>& ranks_of(std::uint32_t node) const { return node_ranks_[node]; }
  std::uint32_t locals() const { return size_of(node_); }
  std::uint32_t local() const { return local_of(rank_); }
  std::uint32_t most_locals() const;
  /// All nodes have as many ranks.
  bool is_even() const { return is_even_; }

  const std::vector<RailPartner>& partners() const { return partners_; }
  /// rail_nobody: it is none.
  std::uint32_t partner_of(int rank) const;
  /// By node: which partner; of this one: rail_nobody.
  const std::vector<std::uint32_t>& sources() const { return sources_; }
  std::vector<RailRank> by_rank() const;
  /// By local rank and column: a rank.
  std::vector<std::uint32_t> targets() const;
  std::uint32_t columns() const;
  std::uint32_t column() const;

  /// This rank among the partners of one of its own.
  struct Position {
    std::uint32_t position, partners;
  };
  Position position_with(const Team& team, const RailPartner& partner) const;

  /// The data that a slot takes, on all ranks, if memory between nodes may have so many bytes, roughly.
  std::uint64_t slot_bytes(std::uint64_t scratch) const;
  /// Likewise, of each node, where ranks tell each other in rounds; else 0. They do on more than so many nodes.
  std::uint64_t node_bytes(std::uint64_t scratch, std::uint32_t rounds_above) const;
  /// How many there are of what; no memory yet.
  RailPlaces places(std::uint64_t slot_bytes, std::uint64_t node_bytes) const;

 private:
  struct Of {
    std::uint32_t node, local;
  };
  std::uint32_t size_of(std::uint32_t node) const { return static_cast<std::uint32_t>(node_ranks_[node].size()); }
  std::vector<std::uint32_t> served_by(std::uint32_t local) const;

  const int rank_;
  std::vector<Of> of_rank_;
  std::vector<std::vector<int>> node_ranks_;
  std::uint32_t node_ = 0;
  bool is_even_ = false;
  std::vector<RailPartner> partners_;
  std::vector<std::uint32_t> sources_;
};

}  // namespace mpix
