// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Epochs over a real provider, between ranks that are threads: what is taken of the network comes back.
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "net/fabric/fabric_inlet.h"
#include "net/progress_agent.h"
#include "nic_pair.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

/// The triggered operations of an endpoint, as the library has them, for all to look into.
class OpenNetwork final : public Network {
 public:
  OpenNetwork(std::uint64_t counter_limit, Capacity capacity, bool marks)
      : endpoint(std::make_shared<Endpoint>(find_provider("sockets"))),
        queue_of(std::make_shared<TriggeredQueue>(endpoint, counter_limit, endpoint->ordered_bytes())),
        agent_(queue_of),
        capacity_(capacity),
        marks_(marks) {}

  std::string name() const override { return "sockets"; }
  NetworkAddress address() const override { return endpoint->address(); }
  Connection connect(const NetworkAddress& peer) override { return endpoint->insert(peer); }
  std::shared_ptr<const Registration> expose(void* base, std::size_t bytes) override {
    return endpoint->register_memory(base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE);
  }
  std::shared_ptr<const Registration> register_source(const void*, std::size_t) override { return nullptr; }
  std::unique_ptr<Inlet> open_inlet(char* base, std::size_t places, std::size_t bytes) override {
    return std::make_unique<FabricInlet>(endpoint, base, places, bytes);
  }
  bool keeps_words_whole() const override { return marks_; }
  bool read_still(const std::function<void()>& read) override { return queue_of->read_still(read); }
  Capacity capacity() const override { return capacity_; }
  std::unique_ptr<Transfer> queue(Connection peer, const NetworkWrite* writes, std::size_t count,
                                  const NetworkSignal* signal) override {
    return queue_of->queue(peer, writes, count, signal);
  }
  void progress() override { queue_of->progress(); }
  std::string probe(Connection peer, const RemoteMemory& memory, std::uint64_t offset) override {
    return queue_of->probe(peer, memory, offset);
  }

  const std::shared_ptr<Endpoint> endpoint;
  const std::shared_ptr<TriggeredQueue> queue_of;

 private:
  ProgressAgent agent_;
  const Capacity capacity_;
  const bool marks_;
};

struct OpenRank {
  /// Marks: small epochs are messages; else they are writes with a signal.
  OpenRank(Bootstrap& bootstrap, Device& device, const Settings& settings, bool marks,
           std::uint64_t counter_limit = 1 << 30)
      : me(bootstrap.rank()),
        peer{1 - me},
        memory(window_bytes),
        source(window_bytes),
        network(new OpenNetwork(counter_limit, {16, 16}, marks)),
        budget(std::in_place, std::unique_ptr<Network>(network), settings),
        unused(network->endpoint.use_count()),
        window(new Window("nic", {memory.data(), window_bytes, 1}, bootstrap, device, settings, &*budget)),
        stream(create_host_stream()) {}
  ~OpenRank() {
    destroy_host_stream(stream);
    window.reset();
  }

  /// With so many bytes, more of them direct the more there are.
  void access(std::size_t bytes) {
    window->start_stream(peer);
    window->put({source.data(), 8, peer[0], 0});
    window->put({source.data(), bytes, peer[0], 8});
    window->complete_stream(stream);
  }
  void epoch(std::size_t bytes) {
    window->post_stream(peer, stream);
    access(bytes);
    window->wait_stream(stream);
  }
  /// Registrations keep the endpoint.
  long registrations() const { return network->endpoint.use_count() - unused; }

  static constexpr std::size_t window_bytes = 40000;
  const int me;
  const std::vector<int> peer;
  std::vector<char> memory, source;
  OpenNetwork* const network;
  std::optional<OperationBudget> budget;
  const long unused;
  std::unique_ptr<Window> window;
  HostStream* const stream;
};

Settings quick_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  settings.nic_eager_bytes = 1000;
  settings.log = LogLevel::error;
  return settings;
}

long resident_kilobytes() {
  long pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(statm);
  }
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr long most_growth = 1 << 30;  // they keep what is freed, and notes of their own
#else
constexpr long most_growth = 500;
#endif

}  // namespace

TEST_CASE("any number of epochs needs the counters, blocks and memory of a few", "[nic][soak]") {
  const char* thousand = std::getenv("NIC_ROUNDS");  // so many instead of 1000
  const bool marks = GENERATE(false, true);
  const long epochs = 2 * (thousand ? std::atol(thousand) : 1000);
  const Settings settings = quick_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    OpenRank side(bootstrap, *device, settings, marks, 50);
    std::size_t counters = 0;
    long kilobytes = 0;
    for (long k = 1; k <= epochs; ++k) {
      side.epoch(k % 10 ? 100 : 30000);
      if (k % 50 == 0) EXPECT(side.stream->synchronize());
      if (k == epochs / 10) {
        counters = side.network->queue_of->open_counters();
        kilobytes = resident_kilobytes();
      }
    }
    EXPECT(side.stream->synchronize());
    EXPECT(side.window->drain());
    EXPECT(side.network->queue_of->held_blocks() == 0);
    // No more than the budget can use, and none for each epoch.
    EXPECT(side.network->queue_of->open_counters() <= 2 * 16 + 2);
    EXPECT(side.network->queue_of->open_counters() <= counters + 8);
    EXPECT(resident_kilobytes() - kilobytes < most_growth);
    EXPECT(side.budget->most_used() <= 16);
    EXPECT(side.registrations() == (marks ? 4 : 3));  // the window, its doorsteps and slots, and an inlet
    side.window.reset();
    // The thread that sends late posts may have a look at them still.
    for (int i = 0; i < 10000 && side.registrations() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT(side.registrations() == 0);
    bootstrap.allgather(0);
  });
}

TEST_CASE("a window whose peer has gone gives back what it had", "[nic]") {
  const bool before = GENERATE(true, false);       // the first epoch
  const bool enqueued = GENERATE(true, false);     // epochs with it are enqueued when it goes
  const std::size_t bytes = GENERATE(100, 30000);  // eager, direct
  const bool marks = GENERATE(false, true);
  CAPTURE(before, enqueued, bytes, marks);
  Settings settings = quick_settings();
  settings.timeout_seconds = 0.3 * test::time_scale();
  settings.fail_on_timeout = false;  // it has to be found out, and not only given up
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    OpenRank side(bootstrap, *device, settings, marks);
    if (!before) {
      side.epoch(bytes);
      EXPECT(side.stream->synchronize());
      EXPECT(side.window->drain());
    }
    bootstrap.allgather(0);
    if (side.me == 1) {
      side.window.reset();
      if (enqueued) bootstrap.allgather(0);
      side.budget.reset();
      if (!enqueued) bootstrap.allgather(0);
    } else {
      const auto epochs = [&] {
        for (int k = 0; k < 3; ++k) side.epoch(bytes);
      };
      std::string text;
      if (enqueued) text = error_of(epochs);
      bootstrap.allgather(0);
      if (!enqueued) text = error_of(epochs);
      side.stream->synchronize();
      text = error_of([&] { side.window->start_stream(side.peer); });
      EXPECT(text.find("rank 1") != std::string::npos);
      EXPECT(text.find("broken") != std::string::npos);
      EXPECT(!side.window->drain());
      side.window.reset();
      EXPECT(side.registrations() <= (marks ? 3 : 2));
      // What was under way when it went may be lost for good; nothing that was only queued.
      EXPECT(side.budget->total() >= 16 - 4);
      EXPECT(side.network->queue_of->held_blocks() == 16 - side.budget->total());
    }
    bootstrap.allgather(0);
  });
}
