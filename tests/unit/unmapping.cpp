// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// When a device may unmap what closed windows have left mapped (device/unmapping.h), with ranks as threads.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "collective/collectives.h"
#include "device/host/host_device.h"
#include "device/unmapping.h"
#include "domain_process.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "notify/halo.h"
#include "support/catch.h"
#include "support/slowdown.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

constexpr auto short_patience = std::chrono::milliseconds(20);

/// The host device, as if it kept closed imports mapped. What `captured` says of its streams is what a GPU would say
/// of streams that are captured.
class KeepingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::size_t closed_imports() const noexcept override { return closed; }
  void unmap_closed_imports() noexcept override { ++unmapped; }
  std::uint64_t check_stream(Stream stream) const override {
    (void)ForwardingDevice::check_stream(stream);
    return captured;
  }
  /// As one that finds a closed import in the place of this one.
  char* import_memory(const ExportedMemory& memory) override {
    could_map = unmap_for_import();
    return ForwardingDevice::import_memory(memory);
  }
  std::atomic<std::size_t> closed{1};
  std::atomic<int> unmapped{0};
  std::atomic<std::uint64_t> captured{0};
  std::atomic<bool> could_map{false};
};

Settings patient_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  return settings;
}

struct Fixture {
  const Settings settings = patient_settings();
  const std::unique_ptr<Device> host = make_host_device(settings, 2);
  KeepingDevice device{*host};
};

/// A rank with a window, in which rank 1 sends to rank 0.
struct Member {
  Member(Bootstrap& all, Device& its_device, const Settings& settings)
      : memory(its_device, 64, true), window("kept", memory.local(), all, its_device, settings) {}
  void expose(Stream stream) {
    window.post_stream({1}, stream);
    window.wait_stream(stream);
  }
  void send(Stream stream) {
    window.start_stream({0});
    window.put({&value, sizeof value, 0, 0});
    window.complete_stream(stream);
  }
  WindowMemory memory;
  Window window;
  std::uint64_t value = 7;
};

}  // namespace

TEST_CASE("closed imports stay mapped while a stream waits for a peer", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, device, all.settings);
    ScopedStream stream;
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      unmap_if_idle(device);
      EXPECT(device.unmapped == 1);
      rank.expose(stream);
      unmap_if_idle(device);
      device.closed = most_closed + 1;  // how much it is does not matter here
      unmap_if_idle(device);
      EXPECT(!unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == 1);
    }
    bootstrap.allgather(0);
    if (bootstrap.rank() == 1) rank.send(stream);
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      unmap_if_idle(device);
      EXPECT(device.unmapped == 2);
      EXPECT(unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == 3);
      device.closed = 0;
      unmap_if_idle(device);
      EXPECT(device.unmapped == 3);  // there was nothing to unmap
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("the end of a window unmaps, unless another one waits", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    auto waiting = std::make_unique<Member>(bootstrap, device, all.settings);
    auto first = std::make_unique<Member>(bootstrap, device, all.settings);
    ScopedStream stream;
    if (bootstrap.rank() == 0) waiting->expose(stream);
    bootstrap.allgather(0);
    first.reset();
    bootstrap.allgather(0);
    EXPECT(device.unmapped == 0);
    bootstrap.allgather(0);
    if (bootstrap.rank() == 1) waiting->send(stream);
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      waiting.reset();
      EXPECT(device.unmapped == 1);
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("epochs in graphs keep closed imports mapped up to a bound, and no import from its place", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, device, all.settings);
    ScopedStream stream;
    device.captured = 5;
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0)
      rank.expose(stream);
    else
      rank.send(stream);
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      for (const std::size_t closed : {std::size_t{1}, most_closed}) {
        device.closed = closed;
        unmap_if_idle(device);
        EXPECT(device.unmapped == 0);
      }
      EXPECT(unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == 1);
      device.closed = most_closed + 1;
      unmap_if_idle(device);
      EXPECT(device.unmapped == 2);
      device.closed = 0;
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("an import that has to unmap waits for epochs that are under way", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, device, all.settings);
    ScopedStream stream;
    if (bootstrap.rank() == 0) rank.expose(stream);
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      EXPECT(unmap_for_import(device, std::chrono::seconds(30)));
      EXPECT(device.unmapped == 1);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT(device.unmapped == 0);
      rank.send(stream);
    }
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
  });
}

TEST_CASE("a device that cannot map asks before it unmaps", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  const Allocation memory = device.allocate(64);
  const ExportedMemory exported = device.export_memory(memory.base);
  device.import_memory(exported);
  CHECK(device.could_map);  // there is nobody to ask
  CHECK(device.unmapped == 1);
  for (const bool answer : {false, true}) {
    Device* asked = nullptr;
    device.set_unmapper([&](Device& which) {
      asked = &which;
      return answer;
    });
    device.import_memory(exported);
    CHECK(asked == &device);
    CHECK(device.could_map == answer);
  }
  CHECK(device.unmapped == 1);
  device.release(memory.base);
}

TEST_CASE("collectives on streams keep closed imports mapped while they wait", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    auto calls = std::make_unique<Collectives>(std::make_shared<const Team>(bootstrap, device, all.settings, nullptr),
                                               bootstrap, device, nullptr, all.settings, Collectives::Ways{}, "kept");
    ScopedStream stream;
    bootstrap.allgather(0);
    const int before = device.unmapped;
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      calls->enqueue({}, stream);
      device.closed = most_closed + 1;
      unmap_if_idle(device);
      EXPECT(!unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == before);
    }
    bootstrap.allgather(0);
    if (bootstrap.rank() == 1) calls->enqueue({}, stream);
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      device.closed = 1;
      unmap_if_idle(device);
      EXPECT(device.unmapped == before + 1);
      device.captured = 1;
    }
    bootstrap.allgather(0);
    calls->enqueue({}, stream);
    EXPECT(stream->synchronize());
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      device.captured = 0;
      unmap_if_idle(device);  // nobody knows whether graphs run
      EXPECT(device.unmapped == before + 1);
      EXPECT(unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == before + 2);
    }
    bootstrap.allgather(0);
    calls.reset();
    bootstrap.allgather(0);
    EXPECT(device.unmapped >= before + 3);  // at the end of the last, at least
  });
}

TEST_CASE("a domain keeps closed imports mapped while its kernels run", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Process process(bootstrap, device, 1, {}, all.settings);
    bootstrap.allgather(0);
    if (bootstrap.rank() == 0) {
      const int before = device.unmapped;
      (void)process.domain.begin_launch();
      unmap_if_idle(device);
      EXPECT(!unmap_for_import(device, short_patience));
      EXPECT(device.unmapped == before);
      process.domain.cancel_launch();
      unmap_if_idle(device);
      EXPECT(device.unmapped == before + 1);
      (void)process.domain.watched_param();  // for a launch of the program's own
      unmap_if_idle(device);
      EXPECT(device.unmapped == before + 1);
      EXPECT(unmap_for_import(device, short_patience));
    }
    bootstrap.allgather(0);
  });
}

namespace {

/// A message to itself that is under way until it is let go.
class HeldMessage final : public HaloTransport {
 public:
  explicit HeldMessage(std::atomic<bool>& let_go) : let_go_(let_go) {}
  void start_send(std::uint32_t message, std::uint32_t half) override { sends_.push_back({message, half, true}); }
  void start_receive(std::uint32_t message, std::uint32_t half) override {
    receives_.push_back({message, half, false});
  }
  void look(bool, std::vector<Over>* over) override {
    if (!let_go_) return;
    for (auto* some : {&sends_, &receives_}) {
      over->insert(over->end(), some->begin(), some->end());
      some->clear();
    }
  }
  std::uint64_t sends() const noexcept override { return 0; }
  bool cancel() noexcept override { return true; }

 private:
  std::atomic<bool>& let_go_;
  std::vector<Over> sends_, receives_;
};

HaloBox box_of(std::uint64_t& word) {
  HaloBox box{};
  box.base = reinterpret_cast<char*>(&word);
  box.row_bytes = sizeof word;
  for (std::uint32_t& rows : box.rows) rows = 1;
  return box;
}

}  // namespace

TEST_CASE("a halo keeps closed imports mapped while it exchanges", "[unmapping]") {
  Fixture all;
  KeepingDevice& device = all.device;
  std::atomic<bool> let_go{false};
  std::uint64_t out = 3, in = 0;
  HaloContent content;
  content.send.push_back(box_of(out));
  content.recv.push_back(box_of(in));
  content.name = "message 0";
  Halo::Options options;
  options.name = "kept";
  Halo halo(options, {content}, device, all.settings);
  halo.use_ends(nullptr, std::vector<HaloEnd>(1));
  CHECK(halo.serves_any());
  halo.serve_by(std::make_unique<HeldMessage>(let_go));
  ScopedStream stream;
  halo.exchange(stream);
  unmap_if_idle(device);
  CHECK(!unmap_for_import(device, short_patience));
  CHECK(device.unmapped == 0);
  let_go = true;
  CHECK(stream->synchronize());
  unmap_if_idle(device);
  CHECK(device.unmapped == 1);
  (void)halo.param();  // for kernels of the program
  unmap_if_idle(device);
  CHECK(device.unmapped == 1);
  CHECK(unmap_for_import(device, short_patience));
  CHECK(device.unmapped == 2);
  CHECK(halo.wait_for_all());
}
