// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective_parts.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "collective_ranks.h"
#include "support/catch.h"

using namespace mpix;
using namespace collective_test;

TEST_CASE("a part that begins late finds the others many steps ahead", "[collective]") {
  constexpr std::uint32_t count = 2, parts = 2, calls = 2;
  Ranks ranks(count, 64, 16384 * count);
  std::vector<Launches> launches(count);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(
          std::make_unique<RankCall>(ranks, rank, number, Plan{CollectiveKind::reduce, 0, 1000, false, false}));
  std::atomic<std::uint32_t> first_parts_ended{0};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t part = 0; part < parts_of_a_rank; ++part)
      threads.emplace_back([&, rank, part] {
        std::mt19937 random(part);
        for (std::uint32_t number = 0; number < calls; ++number) {
          launches[rank].begin(number);
          if (number == 1 && rank == 1 && part == 1)
            for (int polls = 0; first_parts_ended < calls * count && polls < 2000; ++polls)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
          Collective call = of_rank[rank][number]->launch.call;
          call.parts = call.launched = parts;
          call.chunk_words = of_rank[rank][number]->lines_for(parts);
          if (part < parts && !run_by_lines(PartCrew{call, part, 0, random}, call)) ++wrong;
          if (part == 0) ++first_parts_ended;
          launches[rank].end();
        }
      });
  for (std::thread& thread : threads) thread.join();
  CHECK(first_parts_ended == calls * count);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number) wrong += of_rank[rank][number]->wrong();
  CHECK(wrong == 0);
}
