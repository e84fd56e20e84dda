// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls behind guards, by threads as parts of ranks, in memory that the test looks at as memory operations would.
#include "wire/collective_guarded.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "collective_parts.h"
#include "collective_ranks.h"
#include "support/catch.h"

using namespace mpix;
using namespace collective_test;

namespace {

/// A crew that finds what it looks for, or fails.
struct CrewBehindGuards : PartCrew {
  bool await(std::uint32_t, const Line* line, std::uint32_t number, std::uint64_t* data) const {
    return line_arrived(line, number, data) || release();
  }
  bool await(std::uint32_t, const std::uint64_t* word, std::uint64_t progress) const {
    return has_come(load_acquire(word), progress) || release();
  }
  bool release() const {
    store_release(&call.host->released, 1);
    return false;
  }
};

bool poll(const std::atomic<bool>& failed, const std::function<bool()>& look) {
  for (int polls = 0; !look(); ++polls) {
    if (failed || polls > 500'000) return false;  // some 40 s
    if (polls > 20) std::this_thread::sleep_for(std::chrono::microseconds(10));
    std::this_thread::yield();
  }
  return true;
}

/// The guard in front of receives: whether it let pass.
bool pass(const Collective& c, const std::atomic<bool>& failed) {
  return poll(failed, [&] { return load_acquire(c.own_all_came()) >= guarded_need; });
}

template <class Crew>
bool run_half(const Crew& crew, const Collective& call) {
  return GuardedCall<Crew>(crew, call).run();
}

/// Calls of `count` ranks by several parts each, behind guards or without; all is right.
template <class Crew>
void run_calls(std::uint32_t count, bool with_guards) {
  constexpr std::uint32_t calls = 300;
  constexpr CallHalf halves[] = {CallHalf::sends, CallHalf::receives};
  Ranks ranks(count, 256, 3 * 4096);
  std::vector<Launches> launches(count);
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(std::make_unique<RankCall>(ranks, rank, number, plan_of(number, count, 240, false)));
  std::atomic<bool> failed{false};
  std::vector<std::atomic<std::uint32_t>> passed(count);  // guards, by rank
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t part = 0; part < parts_of_a_rank; ++part)
      threads.emplace_back([&, rank, part] {
        std::mt19937 random(rank * parts_of_a_rank + part);
        for (std::uint32_t number = 0; number < 2 * calls; ++number) {
          launches[rank].begin(number);
          const RankCall& rank_call = *of_rank[rank][number / 2];
          Collective call = rank_call.launch.call;
          call.parts = call.launched = 1 + number / 2 % parts_of_a_rank;
          call.half = halves[number % 2];
          if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
          if (part == 0) {
            if (with_guards && call.half == CallHalf::receives && !pass(call, failed)) failed = true;
            passed[rank] = number + 1;
          }
          (void)poll(failed, [&] { return passed[rank] > number; });
          if (part < call.parts && !failed && !run_half<Crew>({{call, part, 0, random}}, call)) failed = true;
          launches[rank].end();
        }
      });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(!failed);
  long wrong = 0;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number) wrong += of_rank[rank][number]->wrong();
  CHECK(wrong == 0);
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const Collective call = ranks.call(rank);
    CHECK((*call.own_all_came() == 0 && *call.came(rank, 0) == 0 && *call.came(rank, 1) == 0));
  }
}

struct CrewThatWaits : PartCrew {};

}  // namespace

TEST_CASE("behind its guards a call waits for nothing", "[collective]") {
  run_calls<CrewBehindGuards>(GENERATE(2u, 3u), true);
}

TEST_CASE("guards that let pass too early cost time, and no data", "[collective]") {
  run_calls<CrewThatWaits>(GENERATE(2u, 3u), false);
}
