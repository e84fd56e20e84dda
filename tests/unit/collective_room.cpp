// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What communicators take of the room for blocks that wait, where host streams seem to be on GPUs that ranks share: all
// ranks of one as many, and those that find none wait in memory operations. Calls are only looked at.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#define GPU_NAMESPACE of_no_gpu
#include "collective/collectives.h"
#include "device/collective_launch.h"
#include "device/gpu/places.h"
#include "device/host/host_device.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

constexpr std::uint32_t multiprocessors = 132;

/// With room for two blocks of 512 threads a multiprocessor.
class WithRoom final : public ForwardingDevice {
 public:
  WithRoom(Device& device, std::uint64_t processor) : ForwardingDevice(device), processor_(processor) {
    places_->open(multiprocessors, 2 * multiprocessors);
  }
  std::uint64_t processor() override { return processor_; }
  std::uint32_t parts_in_use() const noexcept override { return 128; }
  bool wants_guards_where_shared() override { return false; }
  bool has_guards() override { return has_guards_; }
  std::unique_ptr<CallRoom> new_call_room() override { return std::make_unique<CallPlaces>(places_); }
  using ForwardingDevice::launch;
  void launch(Stream, CollectiveLaunch&& launch) override { last = std::move(launch); }

  RoomUse use() const { return CallPlaces(places_).use(); }

  bool has_guards_ = true;
  CollectiveLaunch last;

 private:
  const std::uint64_t processor_;
  const std::shared_ptr<Places> places_ = std::make_shared<Places>();
};

/// Communicators of all ranks, of which so many share each GPU.
class Comms {
 public:
  Comms(Bootstrap& bootstrap, Device& host, int sharers, Settings its_settings = Settings::from_environment())
      : device(host, static_cast<std::uint64_t>(bootstrap.rank() / sharers + 1)),
        bootstrap_(bootstrap),
        settings_(std::move(its_settings)) {}
  ~Comms() { close(); }

  /// The blocks of a call on one more.
  std::uint32_t add(std::uint32_t of_a_call = 0) {
    Collectives::Ways ways;
    ways.blocks = of_a_call;
    all.push_back(std::make_unique<Collectives>(std::make_shared<const Team>(bootstrap_, device, settings_, nullptr),
                                                bootstrap_, device, nullptr, settings_, std::move(ways), "calls"));
    return all.back()->blocks();
  }
  std::vector<std::uint32_t> add_some(int count) {
    std::vector<std::uint32_t> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(add());
    return blocks;
  }
  /// The last one's launch of an all-reduce.
  const CollectiveLaunch& launch_of(std::size_t bytes) {
    std::vector<char> send(bytes), recv(bytes);
    Collectives::Call call;
    call.kind = CollectiveKind::allreduce;
    call.operation = Operation::sum;
    call.element = Element::i64;
    call.bytes = bytes;
    call.send = send.data();
    call.recv = recv.data();
    ScopedStream stream;
    all.back()->enqueue(call, stream);
    return device.last;
  }
  void close() {
    bootstrap_.allgather(0);
    for (const auto& one : all) one->close(true);
    bootstrap_.allgather(0);
    all.clear();
  }

  WithRoom device;
  std::vector<std::unique_ptr<Collectives>> all;

 private:
  Bootstrap& bootstrap_;
  const Settings settings_;
};

Settings with_waits(Waits waits) {
  Settings settings = Settings::from_environment();
  settings.waits = waits;
  return settings;
}

using Blocks = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("each communicator takes most of what is left, and one that finds none waits in memory operations",
          "[collective][places]") {
  const int sharers = GENERATE(1, 2, 4);
  CAPTURE(sharers);
  auto host = make_host_device(Settings::from_environment(), 4);
  ThreadRanks(4).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, sharers);
    const Blocks blocks = comms.add_some(10);
    if (sharers == 1) EXPECT(blocks == Blocks({64, 16, 8, 7, 2, 1, 1, 0, 0, 0}));
    if (sharers == 2) EXPECT(blocks == Blocks({64, 16, 8, 7, 2, 1, 1, 0, 0, 0}));
    if (sharers == 4) EXPECT(blocks == Blocks({32, 8, 6, 2, 1, 0, 0, 0, 0, 0}));
    // All that it takes it gives back.
    comms.close();
    EXPECT(comms.device.use().blocks_taken == 0);
    EXPECT(comms.add() == blocks[0]);
  });
}

TEST_CASE("ranks agree on the least that one of them has left", "[collective][places]") {
  auto host = make_host_device(Settings::from_environment(), 3);
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, 1);
    std::unique_ptr<CallRoom> other;
    if (bootstrap.rank() == 1) {
      other = comms.device.new_call_room();
      other->settle(198 - 30, 1);
    }
    EXPECT(comms.add() == 8);  // of 15 two thirds, a multiple of 8
    EXPECT(comms.device.use().blocks_taken == 16u + (bootstrap.rank() == 1 ? 168u : 0u));
    if (other) other->settle(198 - 16, 1);
    EXPECT(comms.add() == 0);
    EXPECT(comms.device.use().blocks_taken == 16u + (bootstrap.rank() == 1 ? 182u : 0u));
  });
}

TEST_CASE("kernels that are asked for wait, and so do those without memory operations, if there is no room",
          "[collective][places]") {
  const bool are_asked_for = GENERATE(true, false);
  CAPTURE(are_asked_for);
  const Settings settings = with_waits(are_asked_for ? Waits::kernel : Waits::automatic);
  auto host = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, 1, settings);
    comms.device.has_guards_ = are_asked_for || bootstrap.rank() == 0;
    const Blocks blocks = comms.add_some(9);
    EXPECT(blocks == Blocks({64, 16, 8, 7, 2, 1, 1, 1, 1}));
    for (std::size_t bytes : {8, 8 << 10, 64 << 10, 4 << 20}) {
      const Collective& call = comms.launch_of(bytes).call;
      EXPECT(call.parts == 1);
      EXPECT(call.half == CallHalf::whole);
      EXPECT(call.direct || call.packed || call.chunk_words > 0);
    }
  });
}

TEST_CASE("a communicator of one rank takes no room, as it waits for nobody", "[collective][places]") {
  const Waits waits = GENERATE(Waits::automatic, Waits::kernel);
  const Settings settings = with_waits(waits);
  auto host = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, 1, settings);
    const Blocks blocks = comms.add_some(9);
    EXPECT(std::all_of(blocks.begin(), blocks.end(), [](std::uint32_t one) { return one == 64; }));
    EXPECT(comms.device.use().blocks_taken == 0);
    EXPECT(comms.launch_of(64 << 10).room == nullptr);
    EXPECT(comms.device.last.call.parts >= 1);
  });
}

TEST_CASE("a communicator whose calls have so many blocks takes room for two of them in a row",
          "[collective][places]") {
  auto host = make_host_device(Settings::from_environment(), 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, 1);
    EXPECT(comms.add(8) == 8);
    EXPECT(comms.device.use().blocks_taken == 2 * 2 * 8);
    EXPECT(comms.launch_of(64 << 10).call.parts == 8);
    EXPECT(comms.add(64) == 48);
    EXPECT(comms.launch_of(64 << 10).call.parts == 48);
  });
}

TEST_CASE("where a rank's GPU is known to be shared all leave room for kernels of others", "[collective][places]") {
  auto host = make_host_device(Settings::from_environment(), 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Comms comms(bootstrap, *host, 1);
    // by another communicator, of four ranks that share it
    if (bootstrap.rank() == 0) comms.device.new_call_room()->settle(0, 4);
    EXPECT(comms.add() == 32);
    EXPECT(comms.device.use().blocks_taken == 32);
    EXPECT(comms.all.back()->sharers() == 1);  // of this one
    EXPECT(comms.launch_of(64 << 10).sharers == 4);
  });
}
