// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls along trees of ranks: the trees, and the calls, by threads as parts of ranks.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "collective/tree.h"
#include "collective_parts.h"
#include "collective_ranks.h"
#include "device/host/collective_run.h"
#include "support/catch.h"
#include "wire/collective_direct.h"

using namespace mpix;
using namespace collective_test;

namespace {

constexpr TreeShape shapes[] = {{false, false}, {true, true}, {false, true}, {true, false}};

/// What a rank gives to its parent: all ranks whose operands are in it, once each.
std::multiset<std::uint32_t> given_by(std::uint32_t rank, const std::vector<TreePlace>& places, std::uint32_t depth) {
  std::multiset<std::uint32_t> all;
  const TreePlace& place = places[rank];
  REQUIRE(depth < 10);
  for (std::uint32_t i = 0; i < place.count; ++i) {
    const std::uint32_t operand = place.rank(i);
    if (operand == rank) {
      all.insert(rank);
      continue;
    }
    CHECK(places[operand].parent == rank);
    CHECK(place.is_leaf(i) == !places[operand].has_children());
    const auto theirs = given_by(operand, places, depth + 1);
    all.insert(theirs.begin(), theirs.end());
  }
  return all;
}

std::vector<TreePlace> places_of(TreeShape shape, const std::vector<std::uint64_t>& gpus, std::uint32_t root) {
  std::vector<TreePlace> places;
  for (std::uint32_t rank = 0; rank < gpus.size(); ++rank) places.push_back(place_in_tree(shape, gpus, rank, root));
  return places;
}

/// 0: one; else as a hash has it.
std::vector<std::uint64_t> gpus_of(std::uint32_t ranks, std::uint32_t gpus, std::uint32_t seed) {
  std::vector<std::uint64_t> all;
  std::mt19937 random(seed);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) all.push_back(gpus == 0 ? 7 : 1000 - random() % gpus);
  return all;
}

std::uint32_t depth_of(const std::vector<TreePlace>& places) {
  std::uint32_t deepest = 0;
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    std::uint32_t depth = 0;
    for (std::uint32_t at = rank; places[at].parent != at; at = places[at].parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

/// Calls of `count` ranks by several parts each: along trees, and by other ways between.
void run_calls(std::uint32_t count, std::uint32_t gpus) {
  constexpr std::uint32_t calls = 300;
  Ranks ranks(count, 256, std::uint64_t{4096} * count);
  std::vector<Launches> launches(count);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  for (std::uint32_t number = 0; number < calls; ++number) {
    Plan plan = plan_of(number, count, 2500, true);
    plan.along_tree = plan.words > 0 && number % 4 != 3 &&
                      (plan.kind == CollectiveKind::allreduce || plan.kind == CollectiveKind::reduce ||
                       plan.kind == CollectiveKind::bcast);
    if (plan.along_tree) plan.direct = true;
    const auto places = places_of(shapes[number % 4], gpus_of(count, gpus, number), plan.root);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      of_rank[rank].push_back(std::make_unique<RankCall>(ranks, rank, number, plan));
      if (plan.along_tree) of_rank[rank].back()->launch.tree = places[rank];
    }
  }
  std::vector<std::thread> threads;
  std::atomic<bool> failed{false};
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t part = 0; part < parts_of_a_rank; ++part)
      threads.emplace_back([&, rank, part] {
        std::mt19937 random(rank * parts_of_a_rank + part);
        for (std::uint32_t number = 0; number < calls; ++number) {
          launches[rank].begin(number);
          const RankCall& rank_call = *of_rank[rank][number];
          const TreePlace& tree = rank_call.launch.tree;
          Collective call = rank_call.launch.call;
          call.parts = call.launched = 1 + number % parts_of_a_rank;
          call.chunk_words = rank_call.lines_for(call.parts);
          if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
          PlaceTable table;
          const PartCrew crew{call, part, 0, random};
          if (part < call.parts && !failed) {
            const bool good = tree.count > 0 ? TreeCall<PartCrew>(crew, call, table, tree).run()
                              : call.direct  ? DirectCall<PartCrew>(crew, call, table).run()
                                             : run_by_lines(crew, call);
            if (!good) failed = true;
          }
          launches[rank].end();
        }
      });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(!failed);
  long wrong = 0;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (const auto& call : of_rank[rank]) wrong += call->wrong();
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a tree has each rank once, whatever its shape", "[collective]") {
  for (const TreeShape shape : shapes)
    for (const std::uint32_t count : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 16u, 64u})
      for (const std::uint32_t gpus : {0u, 1u, 2u, 4u, 64u})
        for (const std::uint32_t root : {0u, 1u, count / 2, count - 1}) {
          if (root >= count) continue;
          CAPTURE(shape.binomial_on_gpu, shape.binomial_between, count, gpus, root);
          const auto places = places_of(shape, gpus_of(count, gpus, count), root);
          CHECK(places[root].parent == root);
          const auto all = given_by(root, places, 0);
          REQUIRE(all.size() == count);
          for (std::uint32_t rank = 0; rank < count; ++rank) REQUIRE(all.count(rank) == 1);
        }
}

TEST_CASE("shapes of trees", "[collective]") {
  const std::vector<std::uint64_t> one_gpu(8, 5);
  const auto star = places_of({false, true}, one_gpu, 3);
  CHECK(depth_of(star) == 1);
  REQUIRE(star[3].count == 8);
  for (std::uint32_t i = 0; i < 8; ++i) CHECK(star[3].rank(i) == i);  // combined in the order of ranks
  const auto binomial = places_of({true, false}, one_gpu, 0);
  CHECK(depth_of(binomial) == 3);
  CHECK(binomial[0].count == 4);
  CHECK(binomial[7].parent == 6);
  const std::vector<std::uint64_t> four_gpus = {1, 2, 3, 4, 1, 2, 3, 4};
  CHECK(depth_of(places_of({false, false}, four_gpus, 0)) == 2);
  CHECK(depth_of(places_of({false, true}, four_gpus, 0)) == 3);
  const auto places = places_of({false, false}, four_gpus, 5);
  CHECK(places[5].parent == 5);
  CHECK(places[1].parent == 5);  // of its GPU
  CHECK(places[4].parent == 0);  // likewise
  CHECK(places[0].parent == 5);  // that leads its GPU
}

TEST_CASE("calls along trees", "[collective]") {
  const std::uint32_t count = GENERATE(2u, 3u, 5u);
  for (const std::uint32_t gpus : {0u, 2u}) run_calls(count, gpus);
}
