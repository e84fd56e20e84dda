// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/domain.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "creation.h"
#include "device/host/host_device.h"
#include "domain/host_ranks.h"
#include "fake_network.h"
#include "host_ranks.h"
#include "mpix_device/rma.h"
#include "support/catch.h"
#include "support/domain_kernels.h"
#include "support/slowdown.h"
#include "thread_ranks.h"

namespace mpix {
namespace {

using dev::Result;

/// A process of a domain: its ranks are threads.
class Process {
 public:
  Process(Bootstrap& bootstrap, Device& device, std::uint32_t ranks_here, const DomainOptions& options,
          const Settings& settings, OperationBudget* budget = nullptr)
      : bootstrap(bootstrap),
        device(device),
        domain(ranks_here, options,
               std::make_shared<const Team>(bootstrap, device, settings, budget ? &budget->network() : nullptr),
               bootstrap, device, settings, budget) {}
  ~Process() {
    for (char* base : memory_) device.release(base);
  }

  char* allocate(std::size_t bytes) {
    memory_.push_back(device.allocate(bytes).base);
    return memory_.back();
  }
  /// A window with so many bytes of each rank here. Returns them.
  char* make_window(std::size_t bytes, int* window) {
    char* const base = allocate(bytes * domain.ranks_here() + 1);
    std::vector<void*> bases;
    std::vector<std::size_t> sizes;
    for (std::uint32_t i = 0; i < domain.ranks_here(); ++i) {
      bases.push_back(base + i * bytes);
      sizes.push_back(bytes);
    }
    *window = domain.create_window(bootstrap, bases.data(), sizes.data());
    return base;
  }
  /// body(ctx) by every rank here.
  void run(const std::function<void(MPIX_Dev_ctx&)>& body) {
    ScopedStream stream;
    launch_host_ranks(
        domain,
        [](MPIX_Dev_param param, void* argument) {
          MPIX_Dev_ctx ctx;
          if (dev::init(ctx, param, 0) != Result::ok) return;
          (*static_cast<const std::function<void(MPIX_Dev_ctx&)>*>(argument))(ctx);
          dev::finish(ctx);
        },
        const_cast<void*>(static_cast<const void*>(&body)), stream);
    EXPECT(stream->synchronize());
  }

  Bootstrap& bootstrap;
  Device& device;
  Domain domain;

 private:
  std::vector<char*> memory_;
};

Settings domain_settings() {
  Settings settings = quiet_settings();
  settings.timeout_seconds = 60 * test::slowdown();
  return settings;
}

/// Of several processes each; 0: there is one.
struct Nodes {
  int size = 0;
  Capacity capacity{};  ///< of each process's network
};

/// body(process) on each of them; `ranks` by process.
void run_processes(const std::vector<std::uint32_t>& ranks, const DomainOptions& options,
                   const std::function<void(Process&)>& body, const Settings& settings = domain_settings(),
                   const Nodes& nodes = {}) {
  auto device = make_host_device(settings, static_cast<int>(ranks.size()));
  ThreadRanks all(static_cast<int>(ranks.size()), nodes.size);
  all.run([&](Bootstrap& bootstrap) {
    std::optional<OperationBudget> budget;
    if (nodes.size > 0)
      budget.emplace(std::make_unique<FakeNetwork>(nodes.capacity, 7u + static_cast<unsigned>(bootstrap.rank()), false),
                     settings);
    Process process(bootstrap, *device, ranks[static_cast<std::size_t>(bootstrap.rank())], options, settings,
                    budget ? &*budget : nullptr);
    body(process);
    EXPECT(process.domain.wait_for_puts() || process.domain.failure().result != Result::ok);
    // Nobody leaves while others may still write into its memory.
    (void)bootstrap.allgather(0);
  });
}

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

TEST_CASE("notifications that nobody asks for fill their list, and calls say so", "[domain]") {
  DomainOptions few;
  few.most_pending = 20;
  few.lane_lines = 64;
  run_processes({2}, few, [](Process& process) {
    int window = -1;
    (void)process.make_window(8, &window);
    process.run([&](MPIX_Dev_ctx& ctx) {
      if (ctx.rank == 1) {
        for (int i = 0; i < 40; ++i) EXPECT(dev::notify(ctx, window, 0, i) == Result::ok);
        return;
      }
      EXPECT(dev::wait(ctx, window, 1, 40, 1, nullptr) == Result::memory);
      int flag = 1;
      EXPECT(dev::test(ctx, window, 1, 40, 1, &flag, nullptr) == Result::memory);
      EXPECT(flag == 0);
      // None is lost, and their order is kept, where gaps come up between them, too.
      for (int i = 1; i < 40; i += 2) EXPECT(dev::wait(ctx, window, 1, i, 1, nullptr) == Result::ok);
      for (int i = 0; i < 40; i += 2) {
        dev::Status status{};
        EXPECT(dev::wait(ctx, window, 1, -1, 1, &status) == Result::ok);
        EXPECT(status.tag == i);
      }
    });
    const Domain::Failure failure = process.domain.failure();
    EXPECT(failure.result == Result::memory);
    EXPECT(contains(failure.text, "rank 0, MPIX_Dev_wait: no room"));
    EXPECT(process.domain.counts().taken == 40);
    EXPECT(process.domain.counts().pending == 0);
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

TEST_CASE("a wait that nobody serves is reported, and released if so set", "[domain]") {
  Settings settings = domain_settings();
  settings.timeout_seconds = 0.2;
  run_processes(
      {1, 1}, {},
      [](Process& process) {
        int window = -1;
        (void)process.make_window(64, &window);
        process.run([&](MPIX_Dev_ctx& ctx) {
          if (ctx.rank == 1) return;  // this one does nothing
          EXPECT(dev::notify(ctx, window, 0, 7) == Result::ok);
          EXPECT(dev::wait(ctx, window, 1, 7, 3, nullptr) == Result::synchronization);
          // Nothing waits any more.
          EXPECT(dev::wait(ctx, window, 0, 7, 1, nullptr) == Result::synchronization);
          EXPECT(dev::barrier(ctx, dev::world) == Result::synchronization);
          EXPECT(dev::notify(ctx, window, 1, 7) == Result::synchronization);
        });
        if (process.domain.param().process == 0) {
          EXPECT(process.domain.failure().result == Result::synchronization);
          EXPECT(contains(error_of([&] { (void)process.domain.begin_launch(); }), "broken"));
        } else {
          EXPECT(process.domain.failure().result == Result::ok);
        }
        EXPECT(process.domain.wait_for_launches() || process.domain.param().process == 0);
      },
      settings);
  // Of a wait in a put, too; and nothing waits afterwards.
  DomainOptions narrow;
  narrow.lane_lines = 16;
  run_processes(
      {1, 1}, narrow,
      [](Process& process) {
        int window = -1;
        (void)process.make_window(64, &window);
        if (process.domain.param().process == 1) return;
        process.run([&](MPIX_Dev_ctx& ctx) {
          Result result = Result::ok;
          // As if it ran a kernel, which takes nothing.
          store_release(&reinterpret_cast<dev::Inbox*>(ctx.p.inboxes[1])->lock, 1);
          for (int i = 0; i < 100 && result == Result::ok; ++i) result = dev::notify(ctx, window, 1, i);
          EXPECT(result == Result::synchronization);
          store_release(&reinterpret_cast<dev::Inbox*>(ctx.p.inboxes[1])->lock, 0);
        });
        EXPECT(process.domain.failure().result == Result::synchronization);
        EXPECT(load_acquire(&process.domain.param().notes[0].waits) == 0);
        EXPECT(process.domain.is_broken());
      },
      settings);
  dev::RankNote note{};
  dev::write_waiting(note, {dev::DevCall::wait, {3, -1, 7}, 2, 4}, 1);
  CHECK(waiting_text(note, 17, 0) == "rank 17 (process 0) waits for 2 of 4 notifications: window 3, any source, tag 7");
  dev::write_waiting(note, {dev::DevCall::barrier, {-1, -1, -1}, 0, 0}, 2);
  CHECK(waiting_text(note, 1, 1) == "rank 1 (process 1) waits in MPIX_Dev_barrier");
  dev::write_waiting(note, {dev::DevCall::put_notify, {0, 5, 1}, 0, 0}, 3);
  CHECK(contains(waiting_text(note, 1, 1), "room in the lane to rank 5"));
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

TEST_CASE("processes that cannot have a domain are all told why", "[domain]") {
  const Settings settings = domain_settings();
  auto device = make_host_device(settings, 2);
  const auto creation = [&](std::uint32_t ranks, const DomainOptions& mine, const DomainOptions& others) {
    std::vector<std::string> errors(2);
    ThreadRanks all(2);
    all.run([&](Bootstrap& bootstrap) {
      auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
      errors[static_cast<std::size_t>(bootstrap.rank())] =
          error_of([&] { Domain(ranks, bootstrap.rank() == 0 ? mine : others, team, bootstrap, *device, settings); });
    });
    CHECK(errors[0] == errors[1]);
    return errors[0];
  };
  DomainOptions one, other;
  CHECK(creation(1, one, other) == "");
  CHECK(contains(creation(0, one, other), "no process brings a rank"));
  one.most_pending = 5;
  CHECK(creation(1, one, other) == "info mpix_dev_pending differs between the ranks: 5 on rank 0, none on rank 1");
  one.most_pending = other.most_pending = 0;
  CHECK(contains(creation(1, one, other), "mpix_dev_pending is 1 to"));
  one = other = DomainOptions{};
  one.lane_lines = other.lane_lines = 100;
  CHECK(contains(creation(1, one, other), "power of two"));
  one.lane_lines = other.lane_lines = 16;
  one.inline_bytes = other.inline_bytes = 200;
  CHECK(contains(creation(1, one, other), "do not fit into a lane of 16 lines"));
  one = other = DomainOptions{};
  one.inline_bytes = other.inline_bytes = 10000;
  CHECK(creation(1, one, other) == "");
  CHECK(contains(creation(1u << 24, DomainOptions{}, DomainOptions{}), "too many"));
}

}  // namespace
}  // namespace mpix
