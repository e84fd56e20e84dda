// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls that choose their way where they run: the rule, and threads as the parts of ranks.
#include "wire/collective_chosen.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "collective_parts.h"
#include "collective_ranks.h"
#include "support/catch.h"

using namespace mpix;
using namespace collective_test;

namespace {

/// A class of calls whose times are known two calls late, as they are.
class Class {
 public:
  explicit Class(std::vector<std::uint32_t> costs) : costs_(std::move(costs)) {}

  void set(std::vector<std::uint32_t> costs) { costs_ = std::move(costs); }
  /// Half of them are disturbed, some very much.
  void call() {
    const std::uint32_t way = times_.way;
    REQUIRE(way < costs_.size());
    last_ = way;
    std::uint32_t time = costs_[way] + random_() % (costs_[way] / 50 + 1);
    if (random_() % 20 == 0) time *= 1 + random_() % 30;
    spent_ += costs_[way];
    const bool is_measured = times_.measures();
    const std::uint8_t pause = times_.pause_after();
    if (is_measured) sample(way, time);
    times_.pause = pause;
  }
  void sample(std::uint32_t way, std::uint32_t time) {
    in_flight_.push_back({way, time});
    if (in_flight_.size() <= 2) return;
    times_.add(in_flight_.front()[0], in_flight_.front()[1], static_cast<std::uint32_t>(costs_.size()));
    in_flight_.erase(in_flight_.begin());
  }
  std::uint32_t best() const {
    return static_cast<std::uint32_t>(std::min_element(costs_.begin(), costs_.end()) - costs_.begin());
  }
  /// How much longer `calls` calls take than by the best way, as a part of that.
  double regret(int calls) {
    spent_ = 0;
    for (int i = 0; i < calls; ++i) call();
    const double least = static_cast<double>(costs_[best()]) * calls;
    return static_cast<double>(spent_) / least - 1;
  }
  std::uint32_t last() const { return last_; }

 private:
  std::vector<std::uint32_t> costs_;
  WayTimes times_{};
  std::vector<std::array<std::uint32_t, 2>> in_flight_;
  std::mt19937 random_{7};
  std::uint64_t spent_ = 0;
  std::uint32_t last_ = 0;
};

struct Taken {
  bool direct = false;
  std::uint32_t parts = 0;
};

}  // namespace

TEST_CASE("the rule of choices finds the best way, and loses little time", "[collective]") {
  const auto costs =
      GENERATE(std::vector<std::uint32_t>{1000, 900}, std::vector<std::uint32_t>{900, 1000},
               std::vector<std::uint32_t>{1000, 10000}, std::vector<std::uint32_t>{15000, 1000},
               std::vector<std::uint32_t>{5000, 1000, 1200, 1100}, std::vector<std::uint32_t>{4000, 3000, 2000, 1000});
  Class calls(costs);
  CHECK(calls.regret(2000) <= 0.03);
  CHECK(calls.last() == calls.best());
  CHECK(calls.regret(100000) <= 0.01);
}

TEST_CASE("the rule of choices notices that another way has become the best", "[collective]") {
  Class calls({1000, 1500, 3000});
  (void)calls.regret(3000);
  REQUIRE(calls.last() == 0);
  calls.set({2200, 1500, 3000});
  (void)calls.regret(128);
  CHECK(calls.last() == 1);
  // All become slower, and that one most.
  calls.set({4000, 9000, 5000});
  (void)calls.regret(128);
  CHECK(calls.last() == 0);
  // What was poor is the best now: it is found when all are tried again.
  calls.set({4000, 9000, 100});
  (void)calls.regret(40 * static_cast<int>(WayTimes::samples_between));
  CHECK(calls.last() == 2);
}

TEST_CASE("ranks of several parts choose the same ways, and results are right", "[collective]") {
  const std::uint32_t count = GENERATE(2u, 3u);
  const std::uint32_t calls = 1500;
  Ranks ranks(count, 192, 16384 * count, GENERATE(1u, UINT32_MAX - 400));
  std::vector<Launches> launches(count);
  std::vector<std::vector<Taken>> taken(count, std::vector<Taken>(calls));
  std::vector<std::vector<std::unique_ptr<RankCall>>> of_rank(count);
  std::atomic<long> wrong{0};
  const auto plan_of_call = [&](std::uint32_t number) {
    Plan plan = plan_of(number % 40, count, 700, false);  // classes are met again
    if (plan.kind == CollectiveKind::barrier) plan.kind = CollectiveKind::allreduce;
    plan.words = std::max<std::uint64_t>(plan.words, 1);
    plan.attached = number % 3 == 0;
    return plan;
  };
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t number = 0; number < calls; ++number)
      of_rank[rank].push_back(std::make_unique<RankCall>(ranks, rank, number, plan_of_call(number)));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    for (std::uint32_t part = 0; part < parts_of_a_rank; ++part)
      threads.emplace_back([&, rank, part] {
        std::mt19937 random(rank * 100 + part);
        for (std::uint32_t number = 0; number < calls && wrong == 0; ++number) {
          launches[rank].begin(number);
          if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          const RankCall& of_all = *of_rank[rank][number];
          Collective call = of_all.launch.call;
          call.launched = 0;
          std::uint32_t size = 0;
          while (std::uint64_t{1} << size < call.bytes) ++size;
          const WayCandidates ways{3,
                                   static_cast<std::uint32_t>(call.kind) * sizes_of_a_kind + size,
                                   parts_of_a_rank,
                                   {{0, 2, of_all.lines_for(2)}, {1, 1, 0}, {1, 3, 0}}};
          PlaceTable table;
          const PartCrew crew{call, part, 1000 + 1000 * std::uint64_t{rank}, random};
          if (!ChosenCall<PartCrew>(crew, call, ways, table).run()) ++wrong;
          if (part == 0) taken[rank][number] = {call.direct, call.parts};
          launches[rank].end();
        }
      });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  long different = 0, direct = 0;
  for (std::uint32_t number = 0; number < calls; ++number) {
    direct += taken[0][number].direct;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      wrong += of_rank[rank][number]->wrong();
      different +=
          taken[rank][number].direct != taken[0][number].direct || taken[rank][number].parts != taken[0][number].parts;
    }
  }
  CHECK(wrong == 0);
  CHECK(different == 0);
  CHECK(direct > calls / 3);
  CHECK(direct < static_cast<long>(calls));
  CHECK(last_calls(ranks.call(0))->direct == static_cast<std::uint32_t>(direct));
}
