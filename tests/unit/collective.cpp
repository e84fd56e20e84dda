// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collective calls by threads as ranks.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "collective_ranks.h"
#include "device/host/collective_run.h"
#include "support/catch.h"

using namespace mpix;
using namespace collective_test;

namespace {

const Polling polling{std::chrono::microseconds(20), false, std::chrono::microseconds(20)};

/// One rank's part of a call. Returns how many words are wrong.
long run_call(Ranks& ranks, std::uint32_t rank, std::uint32_t number, const Plan& plan) {
  RankCall call(ranks, rank, number, plan);
  return run_on_host(call.launch, polling) ? call.wrong() : 1;
}

/// `calls` random calls by all ranks, with random delays between.
long run_calls(Ranks& ranks, std::uint32_t calls, std::uint64_t most_words, bool may_be_direct) {
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks.count(); ++rank)
    threads.emplace_back([&, rank] {
      std::mt19937 random(rank);
      for (std::uint32_t number = 0; number < calls && wrong == 0; ++number) {
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
        wrong += run_call(ranks, rank, number, plan_of(number, ranks.count(), most_words, may_be_direct));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace

TEST_CASE("random collective calls of threads", "[collective]") {
  const std::uint32_t count = GENERATE(1u, 2u, 3u, 9u);
  Ranks ranks(count, 256, 16384 * count);
  CHECK(run_calls(ranks, count > 4 ? 150 : 400, 3000, false) == 0);
  CHECK(run_calls(ranks, count > 4 ? 150 : 400, 3000, true) == 0);
}

TEST_CASE("numbers of steps and calls begin again", "[collective]") {
  Ranks ranks(3, 64, 4096 * 3, UINT32_MAX - 40);
  CHECK(run_calls(ranks, 300, 200, true) == 0);
  CHECK(ranks.state(0).call < 1000);
}

TEST_CASE("lines beyond those in use are cleared", "[collective]") {
  Ranks ranks(2, 256, 4096 * 2);
  const auto allreduce = [&](std::uint32_t number, std::uint64_t words) {
    std::thread other([&] {
      (void)run_call(ranks, 1, number, Plan{CollectiveKind::allreduce, 0, words, false, false});
    });
    const long wrong = run_call(ranks, 0, number, Plan{CollectiveKind::allreduce, 0, words, false, false});
    other.join();
    return wrong;
  };
  // Both places are written, and then short calls clear a line each.
  for (std::uint32_t i = 0; i < 2; ++i) REQUIRE(allreduce(i, 64) == 0);
  const Collective c = ranks.call(0);
  const auto stale = [&] {
    long count = 0;
    for (std::uint32_t place = 0; place < 2; ++place)
      for (std::uint32_t i = 8; i < 64; ++i) count += c.lines(0, 1, place)[i].half[0] != 0;
    return count;
  };
  CHECK(stale() == 2 * 56);
  for (std::uint32_t i = 2; i < 2 + 2 * 56; ++i) REQUIRE(allreduce(i, 1) == 0);
  CHECK(stale() == 0);
}

TEST_CASE("ranks that call different things are told", "[collective]") {
  Ranks ranks(2, 64, 8192);
  const Plan mine{CollectiveKind::allreduce, 0, 3, false, false}, theirs{CollectiveKind::allgather, 0, 3, false, false};
  std::thread other([&] { (void)run_call(ranks, 1, 0, theirs); });
  CHECK(run_call(ranks, 0, 0, mine) != 0);
  other.join();
  const Collective c = ranks.call(0);
  REQUIRE(c.host->differs == 2);
  CHECK(CallWord::of(c.host->theirs).kind == CollectiveKind::allgather);
  CHECK(CallWord::of(c.host->mine).kind == CollectiveKind::allreduce);
  CHECK(CallWord::of(c.host->mine).bytes == 24);
}
