// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The calls of a communicator, by ranks as threads, in host streams: when they have run, and where ranks seem to be on
// GPUs.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collective/collectives.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

/// Of host streams, whose calls can be counted as long as nobody says that they were captured.
class HostPoint final : public StreamPoint {
 public:
  void set(Stream stream) override {
    *passed_ = false;
    host_stream_launch(
        stream,
        [](void* p) {
          const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> passed(
              static_cast<std::shared_ptr<std::atomic<bool>>*>(p));
          **passed = true;
        },
        new std::shared_ptr<std::atomic<bool>>(passed_));
  }
  bool passed() noexcept override { return *passed_; }

 private:
  const std::shared_ptr<std::atomic<bool>> passed_ = std::make_shared<std::atomic<bool>>(true);
};

/// Says of streams that they are captured; what is enqueued there runs nevertheless, as what a graph has.
class Capturing final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t check_stream(Stream stream) const override {
    const std::uint64_t capture = ForwardingDevice::check_stream(stream);
    return captures ? 1 : capture;
  }
  std::shared_ptr<StreamPoint> new_point() override { return std::make_shared<HostPoint>(); }
  std::atomic<bool> captures{false};
};

std::unique_ptr<Collectives> calls_of(Bootstrap& bootstrap, Device& device, const Settings& settings,
                                      Collectives::Ways ways = {}) {
  return std::make_unique<Collectives>(std::make_shared<const Team>(bootstrap, device, settings, nullptr), bootstrap,
                                       device, nullptr, settings, std::move(ways), "calls");
}

}  // namespace

TEST_CASE("calls are waited for, however many graphs have run", "[collective]") {
  const Settings settings = Settings::from_environment();
  auto host = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Capturing device(*host);
    const auto calls = calls_of(bootstrap, device, settings);
    ScopedStream stream;
    device.captures = true;
    for (int i = 0; i < 5; ++i) calls->enqueue({}, stream);
    device.captures = false;
    EXPECT(stream->synchronize());
    std::atomic<bool> waited{false};
    if (bootstrap.rank() == 0) {
      for (int i = 0; i < 2; ++i) calls->enqueue({}, stream);
      std::thread waits([&] {
        EXPECT(calls->wait_for_all());
        waited = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT(!waited);
      bootstrap.allgather(0);
      waits.join();
    } else {
      bootstrap.allgather(0);
      for (int i = 0; i < 2; ++i) calls->enqueue({}, stream);
      EXPECT(calls->wait_for_all());
    }
    bootstrap.allgather(0);
    EXPECT(stream->synchronize());
    calls->close(true);
    bootstrap.allgather(0);
  });
}

namespace {

/// As in another container, or another device: nobody here can map its memory.
class Elsewhere final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t sharing_group() const override { return ForwardingDevice::sharing_group() + 1; }
  std::size_t preferred_scratch_bytes() const noexcept override {
    return ForwardingDevice::preferred_scratch_bytes() + (1 << 20);
  }
};

}  // namespace

TEST_CASE("ranks of a node that cannot map each other's memory have no collectives, and all are told", "[collective]") {
  const Settings settings = Settings::from_environment();
  auto host = make_host_device(settings, 3);
  Elsewhere elsewhere(*host);
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    Device& device = bootstrap.rank() == 1 ? static_cast<Device&>(elsewhere) : *host;
    std::string said;
    try {
      calls_of(bootstrap, device, settings);
    } catch (const Error& error) {
      EXPECT(error.fault() == Fault::unsupported);
      said = error.what();
    }
    EXPECT(said.find("the ranks cannot reach each other's memory") != std::string::npos);
  });
}

namespace {

constexpr std::uint64_t gpus[] = {7, 5, 7, 5, 5, 9};  // of which rank
constexpr int ranks_on_gpus = 6;

/// Of streams of the host, which seem to be on one of these.
class OnGpu final : public ForwardingDevice {
 public:
  OnGpu(Device& device, int rank) : ForwardingDevice(device), rank_(rank) {}
  std::uint64_t processor() override { return gpus[rank_]; }

 private:
  const int rank_;
};

std::vector<std::int64_t> numbers_of(int rank, int call) {
  std::vector<std::int64_t> all(5000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = (rank + 1) * 1000003 + call * 917 + static_cast<int>(i) * 31;
  return all;
}

std::vector<std::int64_t> sum_of_all(int call) {
  std::vector<std::int64_t> sum(5000);
  for (int rank = 0; rank < ranks_on_gpus; ++rank) {
    const auto one = numbers_of(rank, call);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("calls go along trees of the ranks of GPUs, and of those that lead them", "[collective]") {
  Collectives::Ways ways;
  ways.way = GENERATE(CollectiveWay::gsb, CollectiveWay::btb, CollectiveWay::gsb_btb, CollectiveWay::btb_gsb);
  CAPTURE(static_cast<int>(ways.way));
  const Settings settings = Settings::from_environment();
  auto host = make_host_device(settings, ranks_on_gpus);
  ThreadRanks(ranks_on_gpus).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    OnGpu device(*host, me);
    const auto calls = calls_of(bootstrap, device, settings, ways);
    EXPECT(calls->sharers() == 3);
    ScopedStream stream;
    struct Made {
      CollectiveKind kind;
      int root;
      std::vector<std::int64_t> send, recv;
    };
    std::vector<Made> made;
    for (int root = 0; root < ranks_on_gpus; ++root)
      for (CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::bcast, CollectiveKind::allreduce})
        made.push_back({kind, root, numbers_of(me, static_cast<int>(made.size())), std::vector<std::int64_t>(5000)});
    for (Made& one : made) {
      Collectives::Call call;
      call.kind = one.kind;
      call.root = one.kind == CollectiveKind::allreduce ? 0 : one.root;
      call.bytes = one.send.size() * sizeof one.send[0];
      call.send = one.send.data();
      call.recv = one.recv.data();
      if (one.kind == CollectiveKind::bcast) {
        if (me == one.root) one.recv = one.send;
        call.send = call.recv;
      } else {
        call.operation = Operation::sum;
        call.element = Element::i64;
      }
      calls->enqueue(call, stream);
    }
    EXPECT(stream->synchronize());
    for (int i = 0; i < static_cast<int>(made.size()); ++i) {
      const Made& one = made[static_cast<std::size_t>(i)];
      if (one.kind == CollectiveKind::bcast)
        EXPECT(one.recv == numbers_of(one.root, i));
      else if (one.kind == CollectiveKind::allreduce || me == one.root)
        EXPECT(one.recv == sum_of_all(i));
    }
    EXPECT(calls->counts().along_trees == made.size());
    EXPECT(calls->wait_for_all());
    bootstrap.allgather(0);
    calls->close(true);
    bootstrap.allgather(0);
  });
}
