// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Who is whose partner between nodes: each rank computes that by itself, and both ends of every message agree.
#include "collective/rail_shape.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "device/host/host_device.h"
#include "rail_shapes.h"
#include "support/catch.h"

using namespace mpix;

namespace {

const RailShape& of(const Shapes& shapes, std::uint32_t rank) { return *shapes[rank]; }

/// What `from` has for all nodes, or for this rank, it sends to this rank.
bool gives(const RailShape& from, int to) {
  const std::uint32_t partner = from.partner_of(to);
  return partner != rail_nobody && from.partners()[partner].gives != 0;
}

void check_ends(const Shapes& shapes, std::uint32_t rank) {
  const RailShape& mine = of(shapes, rank);
  for (std::uint32_t other = 0; other < mine.ranks(); ++other) {
    const RailShape& theirs = of(shapes, other);
    const std::uint32_t here = mine.partner_of(static_cast<int>(other));
    const bool are_partners = here != rail_nobody;
    REQUIRE(are_partners == (theirs.partner_of(static_cast<int>(rank)) != rail_nobody));
    if (mine.node() == theirs.node()) {
      REQUIRE_FALSE(are_partners);
      continue;
    }
    // This rank gets what it needs of that node from one rank alone, and that one knows it.
    REQUIRE((are_partners && mine.sources()[theirs.node()] == here) == gives(theirs, static_cast<int>(rank)));
    // A root tells one rank of each node, and that one knows from whom it hears.
    const bool is_told = theirs.local() == mine.local() % theirs.locals();
    REQUIRE(is_told == (are_partners && mine.partners()[here].leads != 0));
  }
}

/// Blocks for all ranks, sorted by who of the node sends them: none is missing, none goes twice.
void check_columns(const RailShape& shape, std::uint32_t rank) {
  const std::vector<std::uint32_t> targets = shape.targets();
  REQUIRE(targets.size() == std::size_t{shape.locals()} * shape.columns());
  std::multiset<std::uint32_t> all;
  for (std::uint32_t local = 0; local < shape.locals(); ++local) {
    const auto begin = targets.begin() + local * shape.columns();
    const std::set<std::uint32_t> served(begin, begin + shape.columns());
    all.insert(served.begin(), served.end());
  }
  REQUIRE(all.size() == shape.ranks());
  for (std::uint32_t other = 0; other < shape.ranks(); ++other) REQUIRE(all.count(other) == 1);
  const std::uint32_t* const own = targets.data() + shape.local() * shape.columns();
  REQUIRE(shape.column() < shape.columns());
  REQUIRE(own[shape.column()] == rank);
  for (const RailPartner& partner : shape.partners())
    if (partner.gives != 0) REQUIRE(own[partner.column] == partner.rank);
}

/// Operands are found in the slot of the node's source, by the number of their rank there.
void check_ranks(const RailShape& shape) {
  const std::vector<RailRank> ranks = shape.by_rank();
  REQUIRE(ranks.size() == shape.ranks());
  std::size_t seen = 0;
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    const std::uint32_t source = shape.sources()[node];
    REQUIRE((source == rail_nobody) == (node == shape.node()));
    if (source != rail_nobody) REQUIRE(shape.partners()[source].node == node);
    const std::vector<int>& there = shape.ranks_of(node);
    for (std::size_t local = 0; local < there.size(); ++local, ++seen) {
      REQUIRE((local == 0 || there[local - 1] < there[local]));
      REQUIRE(ranks[static_cast<std::size_t>(there[local])].partner == source);
      REQUIRE(ranks[static_cast<std::size_t>(there[local])].local == local);
    }
  }
  REQUIRE(seen == shape.ranks());
}

/// What a rank writes to a partner's memory it finds by itself.
void check_positions(const std::vector<int>& nodes, const Shapes& shapes, Device& device) {
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    Lonely alone(nodes, rank);
    const Team team(alone, device, Settings(), nullptr);
    for (const RailPartner& partner : of(shapes, static_cast<std::uint32_t>(rank)).partners()) {
      const RailShape::Position found = of(shapes, static_cast<std::uint32_t>(rank)).position_with(team, partner);
      REQUIRE(found.position == of(shapes, partner.rank).partner_of(rank));
      REQUIRE(found.partners == of(shapes, partner.rank).partners().size());
    }
  }
}

void check(const std::vector<int>& nodes) {
  std::string text = "nodes:";
  for (const int node : nodes) text += " " + std::to_string(node);
  INFO(text);
  const auto device = make_host_device(Settings(), 1);
  const Shapes shapes = shapes_of(nodes, *device);
  for (std::uint32_t rank = 0; rank < shapes.size(); ++rank) {
    INFO("rank " << rank);
    check_ends(shapes, rank);
    check_columns(of(shapes, rank), rank);
    check_ranks(of(shapes, rank));
  }
  check_positions(nodes, shapes, *device);
}

}  // namespace

TEST_CASE("rail shape: partners of even and uneven nodes agree") {
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{4},
                                                                     {1, 1},
                                                                     {2, 2},
                                                                     {1, 3},
                                                                     {3, 1},
                                                                     {2, 3},
                                                                     {3, 2},
                                                                     {4, 6},
                                                                     {1, 2, 3},
                                                                     {5, 1, 4, 2},
                                                                     {4, 4, 4, 4},
                                                                     {8, 1, 1}})
    check(in_a_row(sizes));
  check(in_a_row(std::vector<int>(24, 1)));
}

TEST_CASE("rail shape: ranks lie on nodes in any order") {
  check({0, 1, 0, 1});
  check({1, 0, 0, 1, 1});
  std::mt19937 random(7);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<int> nodes(1 + random() % 14);
    const auto count = 1 + random() % 5;
    for (int& node : nodes) node = static_cast<int>(random() % count);
    check(nodes);
  }
}

TEST_CASE("rail shape: nodes are even only if all have as many ranks") {
  const auto device = make_host_device(Settings(), 1);
  CHECK(of(shapes_of({0, 1, 1, 0}, *device), 0).is_even());
  const Shapes uneven = shapes_of({0, 1, 1}, *device);
  for (const auto& shape : uneven) {
    CHECK_FALSE(shape->is_even());
    CHECK(shape->most_locals() == 2);
  }
}
