// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cstdint>
#include <string>
#include <vector>

#include "domain_process.h"
#include "support/catch.h"
#include "support/domain_kernels.h"

namespace mpix {
namespace {

using dev::Result;

void random_operations(const std::vector<std::uint32_t>& ranks, const DomainOptions& options, std::uint32_t rounds,
                       std::uint64_t seed, const Nodes& nodes = {}) {
  const auto body = [&](Process& process) {
    const std::uint32_t all = process.domain.param().ranks;
    test::RandomTest t{seed, rounds, {0, 0, 0}, 4100, 20000};
    char* parts[3];
    for (int i = 0; i < 3; ++i) parts[i] = process.make_window(t.part_bytes(all), &t.windows[i]);
    const std::uint32_t here = process.domain.ranks_here();
    std::vector<char> scratch(here * t.scratch_bytes(all) + 1);
    std::vector<test::Findings> findings(here);
    process.run([&](MPIX_Dev_ctx& ctx) {
      const std::uint32_t i = ctx.rank - ctx.p.first_rank;
      char* mine[3];
      for (int w = 0; w < 3; ++w) mine[w] = parts[w] + i * t.part_bytes(all);
      test::RandomRank(ctx, t, mine, scratch.data() + i * t.scratch_bytes(all), findings[i]).run();
    });
    for (const test::Findings& one : findings) {
      if (one.faults > 0) {
        std::string text = "rank " + std::to_string(one.first[5]) + ": fault at line";
        for (int i = 0; i < 5; ++i) text += " " + std::to_string(one.first[i]);
        ThreadRanks::expect(false, text.c_str());
      }
      EXPECT(one.operations == std::uint64_t{rounds} * test::RandomTest::ops);
    }
    EXPECT(process.domain.failure().result == Result::ok);
  };
  run_processes(ranks, options, body, domain_settings(), nodes);
}

TEST_CASE("the lap of a line is none that a line without data says, and differs from the lap before") {
  using namespace mpix::dev;
  for (const std::uint32_t shift : {4u, 9u, 16u})
    for (const std::uint64_t lap :
         {std::uint64_t{0}, std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{3} << 32})
      for (std::uint64_t near = lap > 2 ? lap - 2 : 0; near < lap + 3; ++near) {
        const std::uint32_t own = lap_of_line(near << shift, shift), next = lap_of_line((near + 1) << shift, shift);
        CHECK(own == lap_of_line(((near + 1) << shift) - 1, shift));
        CHECK(own != 0);
        CHECK(own != no_lap);
        CHECK(own != next);
      }
}

TEST_CASE("ranks of a domain exchange as a serial model allows", "[domain]") {
  const std::uint32_t rounds = test::sanitized ? 30 : 200;
  DomainOptions usual, narrow, apart;
  narrow.lane_lines = 16;
  narrow.inline_bytes = 64;
  apart.inline_bytes = 0;
  for (const DomainOptions& options : {usual, narrow, apart}) {
    random_operations({1}, options, rounds, 1);
    random_operations({3}, options, rounds, 2);
    random_operations({2, 2}, options, rounds, 3);
    random_operations({3, 0, 1}, options, rounds, 4);
    random_operations({1, 1, 1, 1, 1, 1, 1, 1}, options, rounds / 4, 5);
  }
  SUCCEED();
}

TEST_CASE("ranks of a domain exchange between nodes as a serial model allows", "[domain]") {
  const std::uint32_t rounds = test::sanitized ? 20 : 60;
  const std::size_t operations = GENERATE(std::size_t{1}, std::size_t{3}, Capacity::any);
  CAPTURE(operations);
  const Capacity capacity{operations, Capacity::any};
  random_operations({1, 1}, {}, rounds, 1, {1, capacity});
  random_operations({2, 3}, {}, rounds, 2, {1, capacity});
  random_operations({2, 0, 1, 1}, {}, rounds, 3, {2, capacity});
  random_operations({1, 2, 1}, {}, rounds, 4, {1, capacity});
  random_operations({2, 0}, {}, rounds, 5, {1, capacity});
  SUCCEED();
}

TEST_CASE("a rank that waits for any source starves none", "[domain]") {
  // What lies there is taken in turns.
  run_processes({1, 1, 1}, {}, [](Process& process) {
    int window = -1;
    (void)process.make_window(8, &window);
    const bool is_target = process.domain.param().process == 0;
    if (!is_target)
      process.run([&](MPIX_Dev_ctx& ctx) {
        for (int i = 0; i < 20; ++i) EXPECT(dev::notify(ctx, window, 0, 1) == Result::ok);
      });
    (void)process.bootstrap.allgather(0);
    if (is_target)
      process.run([&](MPIX_Dev_ctx& ctx) {
        int last = -1;
        for (int i = 0; i < 40; ++i) {
          dev::Status status{};
          EXPECT(dev::wait(ctx, window, -1, 1, 1, &status) == Result::ok);
          EXPECT(status.source != last);
          last = status.source;
        }
      });
  });
  SUCCEED();
}

TEST_CASE("ranks that have finished take what is sent to them, as far as there is room", "[domain]") {
  DomainOptions narrow;
  narrow.lane_lines = 16;
  narrow.inline_bytes = 40;
  run_processes({1, 1}, narrow, [](Process& process) {
    int window = -1;
    char* const base = process.make_window(64, &window);
    const bool sends = process.domain.param().process == 1;
    // The other runs nothing at all.
    if (sends)
      process.run([&](MPIX_Dev_ctx& ctx) {
        char data[40] = {};
        for (int i = 0; i < 100; ++i) {
          data[0] = static_cast<char>(i);
          EXPECT(dev::put_notify(ctx, window, 0, 8, sizeof data, data, i) == Result::ok);
        }
        EXPECT(dev::flush(ctx, window) == Result::ok);
      });
    (void)process.bootstrap.allgather(0);
    if (sends) return;
    EXPECT(base[8] == 99);
    EXPECT(process.domain.counts().pending == 100);
    process.run([&](MPIX_Dev_ctx& ctx) {
      for (int i = 0; i < 100; ++i) EXPECT(dev::wait(ctx, window, 1, i, 1, nullptr) == Result::ok);
    });
  });
  SUCCEED();
}

TEST_CASE("what has come for a rank that does not look is counted", "[domain]") {
  DomainOptions narrow;
  narrow.lane_lines = 16;
  narrow.inline_bytes = 40;
  run_processes({1, 1}, narrow, [](Process& process) {
    int window = -1;
    (void)process.make_window(64, &window);
    for (int launch = 0; launch < 3; ++launch) {
      const bool sends = process.domain.param().process == 1;
      if (sends)
        process.run([&](MPIX_Dev_ctx& ctx) {
          const char data[40] = {};
          EXPECT(dev::put_notify(ctx, window, 0, 8, sizeof data, data, 1) == Result::ok);
          for (int i = 0; i < 2; ++i) EXPECT(dev::notify(ctx, window, 0, 2) == Result::ok);
        });
      (void)process.bootstrap.allgather(0);
      EXPECT(process.domain.counts().pending == (sends ? 0 : 3));
      if (!sends)
        process.run([&](MPIX_Dev_ctx& ctx) { EXPECT(dev::wait(ctx, window, -1, -1, 3, nullptr) == Result::ok); });
      EXPECT(process.domain.counts().pending == 0);
      (void)process.bootstrap.allgather(0);
    }
  });
  SUCCEED();
}

TEST_CASE("what ranks log is told in order, and what is lost is said", "[domain]") {
  run_processes({2}, {}, [](Process& process) {
    const dev::LogLine* const lines = process.domain.param().log;
    std::uint64_t last = 0;
    process.run([&](MPIX_Dev_ctx& ctx) {
      if (ctx.rank == 1) return;
      dev::log(ctx, 7, 1, -2, 3);
      dev::log(ctx, -8, 4, 5, 6);
    });
    std::vector<std::string> told = new_log_lines(lines, &last);
    EXPECT(told == std::vector<std::string>{"rank 0: log 7: 1, -2, 3", "rank 0: log -8: 4, 5, 6"});
    EXPECT(new_log_lines(lines, &last).empty());
    process.run([&](MPIX_Dev_ctx& ctx) {
      for (int i = 0; ctx.rank == 1 && i < 300; ++i) dev::log(ctx, i, 0, 0, 0);
    });
    told = new_log_lines(lines, &last);
    EXPECT(told.size() == 257);
    EXPECT(!told.empty() && told.front() == "domain: 44 lines of the log are lost");
    EXPECT(!told.empty() && told.back() == "rank 1: log 299: 0, 0, 0");
  });
  SUCCEED();
}

}  // namespace
}  // namespace mpix
