// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Waits that somebody else has to look after: the notes of kernels, guards.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "epoch/wait_watch.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "support/capture.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;
using namespace std::chrono_literals;

namespace {

/// The words of a window without a window.
struct Words {
  std::vector<WaitNotes> notes;
  HostWords host{};
  explicit Words(std::size_t ranks) : notes(ranks) { host.notes = notes.data(); }
  bool released() const { return __atomic_load_n(&host.released, __ATOMIC_ACQUIRE) != 0; }
};

Settings guarded_settings() {
  Settings settings = Settings::from_environment();
  settings.waits = Waits::memory;
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  return settings;
}

}  // namespace

TEST_CASE("a note says what it was packed from, whatever the beat", "[waits]") {
  for (std::uint64_t epoch : {std::uint64_t{1}, std::uint64_t{17}, std::uint64_t{1} << 44})
    for (Missing missing : {Missing::post, Missing::completion, Missing::departure})
      for (bool fused : {false, true}) {
        const std::uint64_t note = packed({epoch, missing, fused}, 5);
        const std::uint64_t later = packed({epoch, missing, fused}, 70000);
        CHECK(note != 0);
        CHECK(note != later);
        CHECK(without_beat(note) == without_beat(later));
        CHECK(unpacked(later).epoch == epoch);
        CHECK(unpacked(later).missing == missing);
        CHECK(unpacked(later).fused == fused);
      }
}

TEST_CASE("notes that go on for too long are reported; those that stop, or go on to the next epoch, are not",
          "[waits]") {
  // So patient that only the looks of this test count.
  constexpr double patience = 1000;
  Words words(2);
  StallReporter reporter("noted", &words.host, patience, true);
  WaitWatch watch(words.host, 2, reporter, nullptr);
  auto now = Poller::Clock::now();
  std::uint32_t beat = 0;
  const auto look = [&](WaitNote note, bool beats) {
    if (beats) __atomic_store_n(&words.notes[1].receive, packed(note, ++beat), __ATOMIC_RELEASE);
    now += 100s;
    watch.look(now);
  };
  for (std::uint64_t epoch = 1; epoch < 30; ++epoch) look({epoch, Missing::completion, false}, true);
  CHECK_FALSE(words.released());
  for (int i = 0; i < 30; ++i) look({30, Missing::completion, false}, false);
  CHECK_FALSE(words.released());
  for (int i = 0; i < 10; ++i) look({30, Missing::completion, false}, true);
  CHECK_FALSE(words.released());  // since the first of these: 900 s
  look({30, Missing::completion, false}, true);
  CHECK(words.released());
}

TEST_CASE("a guard that nobody satisfies is reported, released and then an error", "[waits]") {
  Settings settings = guarded_settings();
  settings.timeout_seconds = 0.5 * test::time_scale();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const Allocation memory = device->allocate(4096);
    {
      Window window("guarded", {memory.base, memory.bytes, 1}, bootstrap, *device, settings);
      HostStream* stream = create_host_stream();
      const int other = 1 - bootstrap.rank();
      const std::vector<char> large(1000, 'x');
      const auto exchange = [&] {
        window.post_stream({other}, stream);
        window.start_stream({other});
        window.put({large.data(), large.size(), other, 0});
        window.complete_stream(stream);
        window.wait_stream(stream);
      };
      for (int epoch = 0; epoch < 20; ++epoch) exchange();
      EXPECT(stream->synchronize());
      if (bootstrap.rank() == 0) {
        for (int epoch = 0; epoch < 5; ++epoch) exchange();
        EXPECT(!stream->synchronize());
        EXPECT(!window.drain());
        bool refused = false;
        try {
          window.post_stream({other}, stream);
        } catch (const Error& error) {
          refused = error.fault() == Fault::synchronization;
        }
        EXPECT(refused);
      }
      destroy_host_stream(stream);
      bootstrap.allgather(0);
    }
    device->release(memory.base);
  });
}

TEST_CASE("a guard says what it waits for", "[waits]") {
  const Settings settings = guarded_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const Allocation memory = device->allocate(4096);
    {
      const LocalMemory local{memory.base, memory.bytes, 1};
      const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
      Neighbourhood peers(local, team, bootstrap, *device, settings);
      EXPECT(peers.needs_guards());
      HostWords words{};
      Guards guards(peers, *device, &words);
      const int other = 1 - bootstrap.rank();
      peers.agree(bootstrap);
      peers.connect_origin(other);
      peers.connect_target(other);
      RemotePeers none(local, *team, *device, nullptr, "", settings);
      const auto exposure = ExposurePlan::build({other}, peers, none, *device);
      HostStream* stream = create_host_stream();
      const std::vector<char> large(1000, 'x');  // direct: needs the post
      const auto access =
          AccessPlan::build({other}, {Put{large.data(), large.size(), other, 0}}, peers, none, *device, true);
      HostStream* sends = create_host_stream();
      EXPECT(guards.look(Guards::Side::origins).mark == 0);
      EXPECT(guards.look(Guards::Side::targets).mark == 0);
      guards.before_receive(*exposure, Call::wait, stream);
      guards.before_send(*access, nullptr, Call::complete, sends);
      const auto wait_in = [&](Guards::Side side) {
        while (guards.look(side).mark == 0) std::this_thread::yield();
        return guards.look(side);
      };
      const Guards::Waiting receiving = wait_in(Guards::Side::origins), sending = wait_in(Guards::Side::targets);
      EXPECT(receiving.call == Call::wait);
      const std::string late = "rank " + std::to_string(other) + " has not completed exposure epoch 1";
      EXPECT(receiving.missing == late + " (was MPI_Win_start called there without MPIX_MODE_STREAM?)");
      EXPECT(sending.call == Call::complete);
      EXPECT(sending.missing ==
             "rank " + std::to_string(other) +
                 " has not posted access epoch 1 (was MPI_Win_post called there in place of MPIX_Win_post_stream?)");
      bootstrap.allgather(0);
      peers.say_farewell(Farewell::win_free);
      bootstrap.allgather(0);
      EXPECT(guards.look(Guards::Side::origins).missing == late + " (it has called MPI_Win_free)");
      bootstrap.allgather(0);
      peers.say_farewell(Farewell::none);
      bootstrap.allgather(0);
      EXPECT(guards.look(Guards::Side::targets).missing == sending.missing);
      guards.open();
      EXPECT(stream->synchronize());
      EXPECT(sends->synchronize());
      EXPECT(guards.look(Guards::Side::origins).missing.empty());
      EXPECT(guards.look(Guards::Side::targets).missing.empty());
      destroy_host_stream(sends);
      destroy_host_stream(stream);
      bootstrap.allgather(0);
    }
    device->release(memory.base);
  });
}

namespace {

/// Its words cannot be read when it is told so.
class Unreadable final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t read_word(const std::uint64_t* word) override {
    if (fails && ++failures > 0) throw Error(Fault::other, "the GPU has fallen off the bus");
    return ForwardingDevice::read_word(word);
  }
  std::atomic<bool> fails{false};
  std::atomic<int> failures{0};
};

}  // namespace

TEST_CASE("a device whose words cannot be read is looked at no more, and its epochs go on", "[waits]") {
  Settings settings = guarded_settings();
  settings.timeout_seconds = 0.2 * test::time_scale();
  auto host = make_host_device(settings, 2);
  Unreadable device(*host);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const Allocation memory = device.allocate(4096);
    {
      const int other = 1 - bootstrap.rank();
      Window window("unreadable", {memory.base, memory.bytes, 1}, bootstrap, device, settings);
      HostStream* stream = create_host_stream();
      device.fails = true;
      while (device.failures < 2) std::this_thread::sleep_for(1ms);  // one for each window
      const int failures = device.failures;
      std::this_thread::sleep_for(std::chrono::duration<double>(settings.timeout_seconds));
      bootstrap.allgather(0);
      EXPECT(device.failures == failures);
      window.post_stream({other}, stream);
      window.start_stream({other});
      window.complete_wait_stream(stream);
      EXPECT(stream->synchronize());
      EXPECT(window.drain());
      destroy_host_stream(stream);
      bootstrap.allgather(0);
    }
    device.release(memory.base);
  });
}

TEST_CASE("a guard ends with an error when its window has broken", "[waits]") {
  HostWords words{};
  std::uint64_t never = 0;
  Bell bell{};
  HostStream* stream = create_host_stream();
  stream->launch(MemoryOps{{{&never, 1, true}}, &bell, &words});
  __atomic_store_n(&words.released, 1, __ATOMIC_RELEASE);
  CHECK_FALSE(stream->synchronize());
  destroy_host_stream(stream);
}

TEST_CASE("what went wrong first is the cause", "[waits]") {
  HostWords words{};
  StallReporter reporter("failing", &words, 1, true);
  reporter.failed(Call::wait, "the cable is cut");
  reporter.failed(Call::complete, "nobody answers");
  reporter.stalled(Call::wait, "rank 1 is late", 2);
  CHECK(reporter.cause() == "the cable is cut");
  CHECK(words.released != 0);
}

TEST_CASE("a report that knows a cause does not ask for another one", "[waits]") {
  const std::string missing = "rank 1 has not " + missing_text(Missing::completion, 1) + ", rank 2 has not " +
                              missing_text(Missing::post, 1) + ", rank 3 has not " +
                              missing_text(Missing::completion, 1);
  REQUIRE(missing.find("was MPI_Win_start called") != std::string::npos);
  REQUIRE(missing.find("was MPI_Win_post called") != std::string::npos);
  const bool knows = GENERATE(true, false);
  HostWords words{};
  StallReporter reporter("asking", &words, 1, false, "", [=](Call) { return knows ? "it is behind this wait" : ""; });
  test::Capture errors(STDERR_FILENO);
  reporter.stalled(Call::wait, missing, 2);
  const std::string report = errors.end();
  INFO(report);
  const std::string known =
      "rank 1 has not completed exposure epoch 1, rank 2 has not posted access epoch 1, rank 3 has not completed "
      "exposure epoch 1; it is behind this wait";
  CHECK(report.find(knows ? known : missing) != std::string::npos);
}

TEST_CASE("a stream that has passed its guards waits in none", "[waits]") {
  const Settings settings = guarded_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const Allocation memory = device->allocate(4096);
    {
      const LocalMemory local{memory.base, memory.bytes, 1};
      const auto team = std::make_shared<const Team>(bootstrap, *device, settings, nullptr);
      Neighbourhood peers(local, team, bootstrap, *device, settings);
      HostWords words{};
      Guards guards(peers, *device, &words);
      RemotePeers none(local, *team, *device, nullptr, "", settings);
      const int other = 1 - bootstrap.rank();
      peers.agree(bootstrap);
      peers.connect_origin(other);
      peers.connect_target(other);
      const auto access = AccessPlan::build({other}, {}, peers, none, *device, true);
      const auto exposure = ExposurePlan::build({other}, peers, none, *device);
      HostStream* stream = create_host_stream();
      Launch sends, receives;
      for (Launch* launch : {&sends, &receives}) {
        launch->program.guards = peers.guard_marks();
        launch->program.bell = peers.bell();
        launch->program.host = &words;
      }
      sends.program.tables.sends = access->merged.data();
      sends.program.send_count = access->merged.count();
      receives.program.tables.receives = exposure->receives.data();
      receives.program.receive_count = exposure->receives.count();
      guards.before_send(*access, nullptr, Call::complete, stream);
      stream->launch(std::move(sends));
      guards.before_receive(*exposure, Call::wait, stream);
      stream->launch(std::move(receives));
      EXPECT(stream->synchronize());
      EXPECT(guards.look(Guards::Side::targets).mark == 0);
      EXPECT(guards.look(Guards::Side::origins).mark == 0);
      destroy_host_stream(stream);
      bootstrap.allgather(0);
    }
    device->release(memory.base);
  });
}
