// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/settings.h"
#include "collective/rail_shape.h"
#include "device/device.h"
#include "team/bootstrap.h"
#include "team/team.h"

/// Who is whose partner between nodes, of all ranks, in one process.

/// A rank of which nobody knows that it is alone: the others tell what it tells itself.
class Lonely final : public mpix::Bootstrap {
 public:
  Lonely(const std::vector<int>& nodes, int rank) : nodes_(nodes), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const override { return nodes_[static_cast<std::size_t>(rank)]; }
  void allgather(const void* mine, std::size_t bytes, void* all) override { repeat(mine, bytes, all, nodes_.size()); }
  void node_allgather(const void* mine, std::size_t bytes, void* all) override {
    repeat(mine, bytes, all,
           static_cast<std::size_t>(std::count(nodes_.begin(), nodes_.end(), nodes_[static_cast<std::size_t>(rank_)])));
  }

 private:
  static void repeat(const void* mine, std::size_t bytes, void* all, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) std::memcpy(static_cast<char*>(all) + i * bytes, mine, bytes);
  }
  const std::vector<int> nodes_;
  const int rank_;
};

using Shapes = std::vector<std::unique_ptr<const mpix::RailShape>>;

inline Shapes shapes_of(const std::vector<int>& nodes, mpix::Device& device) {
  Shapes shapes;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    Lonely alone(nodes, rank);
    const mpix::Team team(alone, device, mpix::Settings(), nullptr);
    shapes.push_back(std::make_unique<const mpix::RailShape>(team, rank));
  }
  return shapes;
}

/// Nodes of so many ranks, one behind the other.
inline std::vector<int> in_a_row(const std::vector<int>& sizes) {
  std::vector<int> nodes;
  for (std::size_t node = 0; node < sizes.size(); ++node)
    nodes.insert(nodes.end(), static_cast<std::size_t>(sizes[node]), static_cast<int>(node));
  return nodes;
}
