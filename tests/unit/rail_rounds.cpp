// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Rounds between many nodes: what a rank tells is what the other waits for, and in the end all know of all.
#include "collective/rail_rounds.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.h"

using namespace mpix;

namespace {

using Known = std::set<std::uint32_t>;

/// Tells all that there is to tell in a round; `known`: by node, which others it has heard of.
void tell(std::uint32_t nodes, std::uint32_t round, std::vector<Known>& known) {
  const std::vector<Known> before = known;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const RailRounds rounds(nodes, node);
    for (std::uint32_t i = 0; i < RailRounds::fan; ++i) {
      if (!rounds.has(round, i)) continue;
      const RailRounds::Other to = rounds.to(round, i);
      REQUIRE(to.node != node);
      const RailRounds::Other from = RailRounds(nodes, to.node).from(round, i);
      REQUIRE((from.node == node && from.blocks == to.blocks && to.blocks > 0));
      for (std::uint32_t block = 0; block < to.blocks; ++block) {
        const std::uint32_t of = (node + block) % nodes;
        REQUIRE(before[node].count(of) == 1);
        REQUIRE(known[to.node].insert(of).second);  // nobody hears anything twice
      }
    }
  }
}

}  // namespace

TEST_CASE("rail rounds: all hear of all, once, in few rounds") {
  for (std::uint32_t nodes = 1; nodes < 70; ++nodes) {
    INFO(nodes << " nodes");
    std::vector<Known> known(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) known[node] = {node};
    const std::uint32_t rounds = RailRounds(nodes, 0).count();
    for (std::uint32_t round = 0; round < rounds; ++round) tell(nodes, round, known);
    for (const Known& one : known) REQUIRE(one.size() == nodes);
  }
  CHECK(RailRounds(1, 0).count() == 0);
  CHECK(RailRounds(4, 0).count() == 1);
  CHECK(RailRounds(5, 0).count() == 2);
  CHECK(RailRounds(16, 3).count() == 2);
  CHECK(RailRounds(1024, 3).count() == 5);
}

TEST_CASE("rail rounds: the tree of each root reaches all, in as many levels as there are rounds") {
  for (std::uint32_t nodes = 1; nodes < 70; ++nodes)
    for (std::uint32_t root = 0; root < nodes; root += 1 + root / 3) {
      INFO(nodes << " nodes, root " << root);
      std::vector<std::uint32_t> level(nodes, UINT32_MAX);
      level[root] = 0;
      std::vector<std::uint32_t> reached{root};
      for (std::size_t i = 0; i < reached.size(); ++i)
        for (const std::uint32_t child : RailRounds(nodes, reached[i]).children(root)) {
          REQUIRE(level[child] == UINT32_MAX);
          REQUIRE(RailRounds(nodes, child).parent(root) == reached[i]);
          level[child] = level[reached[i]] + 1;
          reached.push_back(child);
        }
      REQUIRE(reached.size() == nodes);
      REQUIRE(*std::max_element(level.begin(), level.end()) <= RailRounds(nodes, root).count());
      REQUIRE(RailRounds(nodes, root).children(root).size() <= RailRounds(nodes, root).count() * RailRounds::fan);
    }
}
