// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Domains in which something goes wrong.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "domain_process.h"
#include "forwarding_device.h"
#include "support/catch.h"

namespace mpix {
namespace {

using dev::Result;

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

TEST_CASE("the error of a put names its call, with what was wrong", "[domain]") {
  run_processes({2}, {}, [](Process& process) {
    int window = -1;
    char* const base = process.make_window(64, &window);
    const auto error_after = [&](const std::function<Result(MPIX_Dev_ctx&)>& call) {
      process.domain.forget_failures();
      process.run([&](MPIX_Dev_ctx& ctx) { EXPECT(ctx.rank != 1 || call(ctx) == Result::range); });
      return process.domain.failure().text;
    };
    const std::string rows = error_after([&](MPIX_Dev_ctx& ctx) {
      return dev::put_notify_2d(ctx, window, 0, 8, base, dev::Rows{8, 3, 32, 8}, 1);
    });
    EXPECT(contains(rows, "rank 1, MPIX_Dev_put_notify_2d: outside of the target's part of the window (window 0, "));
    EXPECT(contains(rows, "target 0, displacement 8, 72 bytes)"));
    const std::string line =
        error_after([&](MPIX_Dev_ctx& ctx) { return dev::put_notify(ctx, window, 0, 60, 8, base, 1); });
    EXPECT(contains(line, "rank 1, MPIX_Dev_put_notify: outside of the target's part of the window"));
  });
  SUCCEED();
}

TEST_CASE("of a full list the error names the commonest sources and tags", "[domain]") {
  DomainOptions few;
  few.most_pending = 20;
  run_processes({1, 2}, few, [](Process& process) {
    int window = -1;
    (void)process.make_window(8, &window);
    (void)process.bootstrap.allgather(0);
    const auto run = [&] {
      process.run([&](MPIX_Dev_ctx& ctx) {
        if (ctx.rank != 0) {
          const int tags[] = {5, 5, 5, 7, 5, 5, 7, 2, 5, 7};
          for (int tag : tags) EXPECT(dev::notify(ctx, window, 0, ctx.rank == 2 && tag == 7 ? 8 : tag) == Result::ok);
          EXPECT(dev::flush(ctx, window) == Result::ok);
        } else {
          EXPECT(dev::wait(ctx, window, 1, 2, 1, nullptr) == Result::ok);  // it leaves a gap
          // What had not to be looked at for that is set aside, too, before more comes.
          int flag = 1;
          EXPECT(dev::test(ctx, window, 1, 40, 1, &flag, nullptr) == Result::ok);
          EXPECT(flag == 0);
          // Two more: the second finds no place.
          for (int i = 0; i < 2; ++i) EXPECT(dev::notify(ctx, window, 0, 9) == Result::ok);
          EXPECT(dev::wait(ctx, window, 1, 40, 1, nullptr) == Result::memory);
        }
      });
    };
    if (process.domain.param().process == 1) run();
    (void)process.bootstrap.allgather(0);
    if (process.domain.param().process == 1) return;
    run();
    const std::string text = process.domain.failure().text;
    EXPECT(contains(text, "rank 0, MPIX_Dev_wait: no room: notifications that nobody asked for"));
    EXPECT(contains(text,
                    "; of 20 set aside the commonest are 6 of source 1 with tag 5, 6 of source 2 with tag 5, "
                    "3 of source 1 with tag 7"));
    process.domain.forget_failures();
    process.run([&](MPIX_Dev_ctx& ctx) { EXPECT(dev::wait(ctx, window, -1, -1, 21, nullptr) == Result::ok); });
    EXPECT(process.domain.counts().pending == 0);
  });
  SUCCEED();
}

TEST_CASE("the note of a wait says how many are still missing", "[domain]") {
  run_processes({2}, {}, [](Process& process) {
    int window = -1;
    (void)process.make_window(64, &window);
    process.run([&](MPIX_Dev_ctx& ctx) {
      if (ctx.rank == 0) {
        EXPECT(dev::wait(ctx, window, 1, 7, 3, nullptr) == Result::ok);
        return;
      }
      const dev::RankNote& note = ctx.p.notes[0];
      const auto says = [&](std::uint32_t needs) {
        for (int looks = 0; looks < 20000; ++looks) {
          if (load_acquire(&note.waits) != 0 && dev::waiting_in(note).needs == needs) return true;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
      };
      EXPECT(says(3));
      for (int i = 0; i < 2; ++i) EXPECT(dev::notify(ctx, window, 0, 7) == Result::ok);
      EXPECT(says(1));
      EXPECT(dev::notify(ctx, window, 0, 7) == Result::ok);
    });
  });
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
  dev::write_waiting(note, {dev::DevCall::barrier, {-1, -1, dev::node}, 0, 0}, 2);
  CHECK(waiting_text(note, 1, 1) ==
        "rank 1 (process 1) waits in a barrier of MPIX_DEV_NODE (MPIX_Dev_barrier, _win_open, _win_close, _bcast or "
        "_reduce)");
  dev::write_waiting(note, {dev::DevCall::barrier, {-1, -1, -1}, 0, 0}, 2);
  CHECK(contains(waiting_text(note, 1, 1), "waits in a barrier of its ranks"));
  dev::RankNote notes[11] = {};
  CHECK(missing_text(notes, 11, 100, dev::node) == "100, 101, 102, 103, 104, 105, 106, 107 and 3 more");
  for (int i = 0; i < 11; ++i) {
    if (i != 4) dev::write_waiting(notes[i], {dev::DevCall::barrier, {-1, -1, dev::node}, 0, 0}, 1);
  }
  CHECK(missing_text(notes, 11, 100, dev::node) == "104");
  dev::write_waiting(notes[4], {dev::DevCall::barrier, {-1, -1, dev::world}, 0, 0}, 1);
  CHECK(missing_text(notes, 11, 100, dev::node) == "104");
  dev::write_waiting(notes[4], {dev::DevCall::barrier, {-1, -1, dev::node}, 0, 0}, 2);
  CHECK(missing_text(notes, 11, 100, dev::node) == "");
  dev::write_waiting(note, {dev::DevCall::put_notify, {0, 5, 1}, 0, 0}, 3);
  CHECK(contains(waiting_text(note, 1, 1), "room in the lane to rank 5"));
}

TEST_CASE("a rank that has not finished is waited for, or given up", "[domain]") {
  Settings settings = domain_settings();
  settings.timeout_seconds = 0.2;
  settings.fail_on_timeout = true;
  run_processes(
      {2}, {},
      [](Process& process) {
        ScopedStream stream;
        launch_host_ranks(
            process.domain,
            [](MPIX_Dev_param param, void*) {
              MPIX_Dev_ctx ctx;
              EXPECT(dev::init(ctx, param, 0) == Result::ok);
              if (ctx.rank == 0) dev::finish(ctx);
            },
            nullptr, stream);
        EXPECT(stream->synchronize());
        EXPECT(!process.domain.wait_for_launches());
        EXPECT(process.domain.is_broken());
        // Nor does anybody wait in the next one.
        EXPECT(contains(error_of([&] { (void)process.domain.begin_launch(); }), "broken"));
      },
      settings);
  SUCCEED();
}

TEST_CASE("what comes from another node for outside of a window is left out", "[domain]") {
  const auto body = [](Process& process) {
    int window = -1;
    char* const base = process.make_window(64, &window);
    const MPIX_Dev_param& param = process.domain.param();
    const bool puts = param.first_rank == 1;
    if (puts) {
      // It takes the other's part for a larger one.
      const dev::Places at = dev::places(param.ranks, param.processes);
      auto* const parts = reinterpret_cast<dev::WindowEntry*>(param.segment + at.windows);
      parts[static_cast<std::uint32_t>(window) * param.ranks].present = 1u << 20;
    }
    process.run([&](MPIX_Dev_ctx& ctx) {
      if (puts) {
        std::vector<char> data(600000, 1);
        for (const std::size_t at : {std::size_t{64}, std::size_t{60}, std::size_t{100000}})
          EXPECT(dev::put_notify(ctx, window, 0, at, 8, data.data(), 1) == Result::ok);
        EXPECT(dev::put_notify(ctx, window, 0, 8, data.size(), data.data(), 2) == Result::ok);
        EXPECT(dev::put(ctx, window, 0, 64, 8, data.data()) == Result::ok);
        EXPECT(dev::get_notify(ctx, window, 0, 64, 8, data.data(), 2) == Result::ok);
        EXPECT(dev::put_notify(ctx, window, 0, 0, 8, data.data() + 8, 3) == Result::ok);
        EXPECT(dev::flush(ctx, window) == Result::ok);
        return;
      }
      dev::Status status{};
      EXPECT(dev::wait(ctx, window, -1, -1, 1, &status) == Result::ok);
      EXPECT(status.source == 1 && status.tag == 3 && status.bytes == 8);
      int flag = 1;
      EXPECT(dev::test(ctx, -1, -1, -1, 1, &flag, nullptr) == Result::ok);
      EXPECT(flag == 0);
    });
    if (puts) return;
    for (int i = 0; i <= 64; ++i) EXPECT(base[i] == (i < 8 ? 1 : 0));
  };
  run_processes({1, 1}, {}, body, domain_settings(), {1, {Capacity::any, Capacity::any}});
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
  CHECK(contains(creation(1, one, other), "they have to fit into a lane of 16 lines"));
  one = other = DomainOptions{};
  one.inline_bytes = other.inline_bytes = 10000;
  CHECK(creation(1, one, other) == "");
  CHECK(contains(creation(1u << 24, DomainOptions{}, DomainOptions{}), "too many"));
}

TEST_CASE("processes that have a GPU in turns have no domain there", "[domain]") {
  class Turns final : public ForwardingDevice {
   public:
    Turns(Device& device, bool shared) : ForwardingDevice(device), shared_(shared) {}
    std::uint64_t processor() override { return shared_ ? 7 : 7 + ++processors_; }
    bool wants_guards_where_shared() override { return true; }

   private:
    const bool shared_;
    std::atomic<std::uint64_t> processors_{0};
  };
  const Settings settings = domain_settings();
  auto device = make_host_device(settings, 2);
  for (const bool shared : {true, false}) {
    Turns turns(*device, shared);
    ThreadRanks all(2);
    all.run([&](Bootstrap& bootstrap) {
      auto team = std::make_shared<const Team>(bootstrap, turns, settings, nullptr);
      const std::string error = error_of([&] { Domain(1, {}, team, bootstrap, turns, settings); });
      EXPECT(shared ? contains(error, "processes share a GPU in turns") : error.empty());
    });
  }
  SUCCEED();
}

}  // namespace
}  // namespace mpix
