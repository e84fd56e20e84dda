// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The relay, with ranks as threads and a network that does what the test wants.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "fake_network.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "offnode/outgoing.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

Settings relay_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  settings.relay = true;
  return settings;
}

/// One rank: a window over heap memory, a stream, and its way to the others.
struct Rank {
  Rank(Bootstrap& bootstrap, Device& device, const Settings& settings, Capacity capacity, std::size_t bytes,
       std::size_t least_device_write = SIZE_MAX)
      : me(bootstrap.rank()),
        memory(bytes),
        network(new FakeNetwork(capacity, 23u + static_cast<unsigned>(me), true, least_device_write)),
        budget(std::unique_ptr<Network>(network), settings),
        window(new Window("relayed", {memory.data(), bytes, 1}, bootstrap, device, settings, &budget)),
        stream(create_host_stream()) {}
  ~Rank() {
    destroy_host_stream(stream);
    window.reset();
  }

  const int me;
  std::vector<unsigned char> memory;
  FakeNetwork* const network;
  OperationBudget budget;
  std::unique_ptr<Window> window;
  HostStream* const stream;
};

/// Counts the pinned memory that is there.
class CountingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::shared_ptr<char> allocate_pinned(std::size_t bytes) override {
    if (bytes > most_) throw Error(Fault::memory, "no such memory");
    if (waits_for_launches_) EXPECT(std::this_thread::get_id() == allocates_);
    const auto memory = ForwardingDevice::allocate_pinned(bytes);
    *pinned_ += bytes;
    return std::shared_ptr<char>(memory.get(), [memory, bytes, pinned = pinned_](char*) { *pinned -= bytes; });
  }
  std::size_t pinned() const { return *pinned_; }
  bool waits_for_launches() const noexcept override { return waits_for_launches_; }
  /// The thread that calls this is the only one to allocate from now on.
  void wait_for_launches() {
    waits_for_launches_ = true;
    allocates_ = std::this_thread::get_id();
  }
  /// More than so many bytes at once there are not.
  void have_no_more_than(std::size_t bytes) { most_ = bytes; }

 private:
  std::shared_ptr<std::atomic<std::size_t>> pinned_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::atomic<std::size_t> most_{SIZE_MAX};
  std::atomic<bool> waits_for_launches_{false};
  std::thread::id allocates_;
};

struct Piece {
  std::size_t offset, bytes;
};

/// What rank `origin` puts into `target` in an epoch, and whether it has one: known to both.
std::vector<Piece> pieces(unsigned epoch, int origin, int target, std::size_t part) {
  std::mt19937 random(epoch * 131u + static_cast<unsigned>(origin * 17 + target));
  std::vector<Piece> all;
  std::size_t at = 0;
  const unsigned count = random() % 5;
  const std::size_t sizes[] = {0, 1, 7, 8, 9, 200, 4096, 30000};
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t bytes = sizes[random() % 8];
    const std::size_t gap = random() % 3 == 0 ? 0 : random() % 13;
    if (at + gap + bytes > part) break;
    all.push_back({at + gap, bytes});
    at += gap + bytes;
  }
  return all;
}

bool has_edge(unsigned epoch, int origin, int target) {
  std::mt19937 random(epoch * 977u + static_cast<unsigned>(origin * 101 + target));
  return random() % 4 != 0;
}

unsigned char byte_of(unsigned epoch, int origin, std::size_t at) {
  return static_cast<unsigned char>(epoch * 37 + static_cast<unsigned>(origin) * 11 + at * 3 + at / 256);
}

/// As a GPU is, to other nodes: its streams serve no remote work, and it has another name.
class OtherDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  const char* name() const noexcept override { return "other"; }
  bool serves_remote_work() const noexcept override { return false; }
};

/// Who needs the relay; then all use it.
enum class Needs { all, first_rank, other_device };

struct Case {
  int ranks, node_size;
  Capacity capacity;
  Throttle throttle;
  std::size_t eager_bytes;
  std::uint32_t slots;
  bool merge;
  unsigned epochs;
  Needs needs = Needs::all;                   ///< other_device: the second half of the ranks
  std::size_t least_device_write = SIZE_MAX;  ///< of their networks
};

/// Random epochs. Every byte of every window is checked after every epoch, and the budget by the network itself.
void random_epochs(const Case& given) {
  Settings settings = relay_settings();
  settings.throttle = given.throttle;
  settings.nic_eager_bytes = given.eager_bytes;
  settings.mailbox_slots = given.slots;
  settings.merge = given.merge;
  const std::size_t part = 70000;
  const auto ranks = static_cast<std::size_t>(given.ranks);
  auto host = make_host_device(settings, given.ranks);
  OtherDevice second(*host);
  std::atomic<long> wrong{0};
  ThreadRanks(given.ranks, given.node_size).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    Settings own = settings;
    own.relay = given.needs == Needs::all || (given.needs == Needs::first_rank && me == 0);
    const bool is_other = given.needs == Needs::other_device && me >= given.ranks / 2;
    Rank rank(bootstrap, is_other ? static_cast<Device&>(second) : *host, own, given.capacity, part * ranks,
              given.least_device_write);
    std::vector<unsigned char> source(part * ranks), expected(part * ranks, 0);
    if (is_other) {
      FakeNetwork::hide(source.data(), source.size());
      FakeNetwork::hide(rank.memory.data(), rank.memory.size());
    }
    for (unsigned epoch = 1; epoch <= given.epochs; ++epoch) {
      std::vector<int> origins, targets;
      for (int other = 0; other < given.ranks; ++other) {
        if (has_edge(epoch, other, me)) origins.push_back(other);
        if (has_edge(epoch, me, other)) targets.push_back(other);
      }
      rank.window->post_stream(origins, rank.stream);
      then(rank.stream, [&, epoch] {
        for (std::size_t at = 0; at < source.size(); ++at) source[at] = byte_of(epoch, me, at);
      });
      rank.window->start_stream(targets);
      for (int target : targets)
        for (const Piece& piece : pieces(epoch, me, target, part))
          rank.window->put({source.data() + piece.offset, piece.bytes, target,
                            static_cast<std::int64_t>(part * static_cast<std::size_t>(me) + piece.offset)});
      if (epoch % 3 == 0) {
        rank.window->complete_wait_stream(rank.stream);
      } else {
        rank.window->complete_stream(rank.stream);
        rank.window->wait_stream(rank.stream);
      }
      then(rank.stream, [&, epoch, origins] {
        for (int origin : origins)
          for (const Piece& piece : pieces(epoch, origin, me, part))
            for (std::size_t i = 0; i < piece.bytes; ++i)
              expected[part * static_cast<std::size_t>(origin) + piece.offset + i] =
                  byte_of(epoch, origin, piece.offset + i);
        if (expected != rank.memory) ++wrong;
      });
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(rank.window->drain());
    EXPECT(rank.budget.is_idle(rank.window.get()));
    EXPECT(rank.network->most_operations() <= given.capacity.operations);
    EXPECT(rank.network->most_transfers() <= given.capacity.transfers);
    EXPECT(rank.network->most_operations() > 0);
    bootstrap.allgather(0);
  });
  FakeNetwork::hide_nothing();
  CHECK(wrong == 0);
}

std::string error_of(const std::function<void()>& call, Fault expected) {
  try {
    call();
  } catch (const Error& error) {
    if (error.fault() == expected) return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class Condition>
bool soon(Condition holds) {
  for (int i = 0; i < 5000 * test::time_scale(); ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("relayed epochs deliver every byte and touch no other, with any budget", "[relay]") {
  const std::size_t operations = GENERATE(1, 3, 1000);
  const Throttle throttle = GENERATE(Throttle::adaptive, Throttle::fixed);
  const std::size_t eager = GENERATE(0, 300, 16384);
  CAPTURE(operations, eager);
  random_epochs({3, 1, {operations, 1000}, throttle, eager, 4, true, 30});
}

TEST_CASE("where one rank needs the relay all use it, and ranks with different devices exchange between nodes",
          "[relay]") {
  const Needs needs = GENERATE(Needs::first_rank, Needs::other_device);
  CAPTURE(needs == Needs::first_rank);
  random_epochs({4, 2, {9, 2}, Throttle::adaptive, 300, 4, true, 60, needs});
}

TEST_CASE("what the network takes from origin buffers, and leaves in windows, comes whole, with any budget",
          "[relay]") {
  const std::size_t operations = GENERATE(1, 3, 1000);
  const std::size_t eager = GENERATE(0, 300, 16384);
  const Needs needs = GENERATE(Needs::all, Needs::other_device);
  const bool merge = GENERATE(true, false);
  CAPTURE(operations, eager, merge, needs == Needs::all);
  // On the device that is not the host only puts of 4096 bytes and more.
  random_epochs(
      {4, needs == Needs::all ? 1 : 2, {operations, 1000}, Throttle::adaptive, eager, 4, merge, 30, needs, 4096});
}

TEST_CASE("relayed peers and peers of this node in one epoch", "[relay]") {
  const std::uint32_t slots = GENERATE(1u, 4u);
  const bool merge = GENERATE(true, false);
  CAPTURE(slots, merge);
  random_epochs({4, 2, {9, 2}, Throttle::adaptive, 300, slots, merge, 60});
}

TEST_CASE("what is larger than a chunk goes in chunks, of which the first ones move while others are packed",
          "[relay]") {
  Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  const std::size_t operations = GENERATE(1, 1000);
  CAPTURE(operations);
  static constexpr std::size_t part = std::size_t{3} << 20, bytes = 2 * part + 77;
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {operations, 1000}, bytes);
    const int other = 1 - rank.me;
    std::vector<unsigned char> source(bytes);
    for (unsigned epoch = 1; epoch <= 4; ++epoch) {
      // Odd epochs have three puts across the borders of chunks, even ones a single one in one chunk.
      const bool is_large = epoch % 2 != 0;
      rank.window->post_stream({other}, rank.stream);
      for (std::size_t i = 0; i < bytes; ++i) source[i] = byte_of(epoch, rank.me, i);
      rank.window->start_stream({other});
      rank.window->put({source.data(), is_large ? part : 40000, other, 0});
      if (is_large) {
        rank.window->put({source.data() + part, 77, other, static_cast<std::int64_t>(part)});
        rank.window->put({source.data() + part + 77, part, other, static_cast<std::int64_t>(part + 77)});
      }
      rank.window->complete_wait_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
      bool right = true;
      for (std::size_t i = 0; i < bytes; ++i)
        right = right && rank.memory[i] == byte_of(is_large || i < 40000 ? epoch : epoch - 1, other, i);
      EXPECT(right);
    }
    EXPECT(rank.window->drain());
    // Signals, and the writes in front of them: 4 posts, the first with one; an ask and its answer; entries with the
    // first chunk, and each further chunk.
    constexpr std::uint64_t posts = 4 + 1, ask_and_answer = 4, large = 3 + 3 * 2, small = 3;
    EXPECT(rank.window->stats().network_operations == posts + ask_and_answer + 2 * (large + small));
    bootstrap.allgather(0);
  });
}

TEST_CASE("what goes direct is in nobody's hands but the network's, and takes no memory of the library", "[relay]") {
  const Settings settings = relay_settings();
  auto host = make_host_device(settings, 2);
  static constexpr std::size_t bytes = std::size_t{5} << 20, small = 100;
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    CountingDevice device(*host);
    Rank rank(bootstrap, device, settings, {100, 100}, bytes, 1);
    const int other = 1 - rank.me;
    const std::vector<unsigned char> source(bytes, static_cast<unsigned char>('a' + rank.me));
    rank.window->post_stream({other}, rank.stream);
    rank.window->start_stream({other});
    rank.window->put({source.data(), bytes - small, other, 0});
    rank.window->put({source.data(), small, other, bytes - small});
    rank.window->complete_wait_stream(rank.stream);
    EXPECT(rank.stream->synchronize());
    EXPECT(std::count(rank.memory.begin(), rank.memory.end(), 'a' + other) == bytes);
    const auto& sources = rank.network->sources();
    EXPECT(std::any_of(sources.begin(), sources.end(), [&](const FakeNetwork::Source& read) {
      return read.base == reinterpret_cast<const char*>(source.data()) && read.bytes == bytes - small;
    }));
    EXPECT(device.pinned() < bytes / 4);
    EXPECT(rank.window->drain());
    // The post with a write; the entry with its data, the large put, and one signal.
    EXPECT(rank.window->stats().network_operations == 2 + 3);
    EXPECT(rank.window->stats().bytes_network_direct == bytes - small);
    bootstrap.allgather(0);
  });
}

TEST_CASE("a put that goes direct waits for its own target's post, and keeps no other target waiting", "[relay]") {
  const Settings settings = relay_settings();
  auto host = make_host_device(settings, 3);
  static constexpr std::size_t bytes = 100000;
  const bool fused = GENERATE(false, true);
  CAPTURE(fused);
  // 0 puts into 1 and 2; 1 posts for it when it has what 2 sends, and 2 sends that when it has what 0 sends.
  ThreadRanks(3, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *host, settings, {100, 100}, bytes, 1);
    const std::vector<unsigned char> source(bytes, '1');
    const auto put_into = [&](const std::vector<int>& targets) {
      rank.window->start_stream(targets);
      for (int target : targets) rank.window->put({source.data(), bytes, target, 0});
      rank.window->complete_stream(rank.stream);
    };
    const auto receive_from = [&](int origin) {
      rank.window->post_stream({origin}, rank.stream);
      rank.window->wait_stream(rank.stream);
    };
    if (rank.me == 0 && fused) {
      rank.window->post_stream({1}, rank.stream);
      rank.window->start_stream({1, 2});
      for (int target : {1, 2}) rank.window->put({source.data(), bytes, target, 0});
      rank.window->complete_wait_stream(rank.stream);
    } else if (rank.me == 0) {
      put_into({1, 2});
    } else if (rank.me == 1) {
      receive_from(2);
      if (fused) put_into({0});
      receive_from(0);
    } else {
      receive_from(0);
      put_into({1});
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("all plans share outgoing memory, and what is too small for the next one goes when its epochs are over",
          "[relay]") {
  const Settings settings = relay_settings();
  auto host = make_host_device(settings, 1);
  CountingDevice device(*host);
  FakeNetwork network({100, 100}, 1, false);
  RelayedOut words{};
  words.allowed = 1;
  Outgoing outgoing(device, network, words);
  const auto enter = [&](std::size_t bytes) { return outgoing.enter({{{0, bytes, 0}}, bytes, 0, {}}); };
  const RelayedSend first = enter(700), other = enter(50000);
  CHECK(first.data == other.data);
  CHECK(outgoing.message(first.message).data == first.data);
  const std::size_t small = device.pinned();
  CHECK(small <= 65536);

  const RelayedSend second = enter(200000);
  CHECK(second.data != first.data);
  const std::size_t both = device.pinned();
  CHECK(both <= small + 250000);
  outgoing.leave(first.message);
  (void)enter(1);
  CHECK(device.pinned() == both);  // one of two plans has it still
  write_task(words.lane(), 7, TaskKind::send, other.message);
  publish_task(words.lane(), 7);
  outgoing.leave(other.message);
  words.allowed = 7;
  (void)enter(1);
  CHECK(device.pinned() == both);  // the network may
  words.allowed = 8;
  CHECK(enter(1).data == second.data);
  CHECK(device.pinned() == both - small);
}

namespace {

/// Memory that takes none before it is used.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        base_(static_cast<unsigned char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~SparseMemory() { munmap(base_, bytes_); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  unsigned char* data() const { return base_; }

 private:
  const std::size_t bytes_;
  unsigned char* const base_;
};

}  // namespace

TEST_CASE("outgoing memory has room for the entries in front of the data", "[relay]") {
  Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    constexpr std::size_t bytes = std::size_t{64} << 10;  // the least block
    Rank rank(bootstrap, *device, settings, {100, 100}, bytes);
    const std::vector<char> data(bytes, '1');
    const int other = 1 - rank.me;
    rank.window->post_stream({other}, rank.stream);
    rank.window->start_stream({other});
    rank.window->put({data.data(), bytes, other, 0});
    rank.window->complete_wait_stream(rank.stream);
    EXPECT(rank.stream->synchronize());
    std::size_t most = 0;
    for (const FakeNetwork::Source& source : rank.network->sources()) most = std::max(most, source.bytes);
    EXPECT(most > bytes);
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

namespace {

/// Pages that take a while when they are read first.
class SlowPages {
 public:
  static constexpr std::size_t bytes = 65536;
  explicit SlowPages(unsigned char* base) {
    base_ = base;
    mprotect(base, bytes, PROT_NONE);
    struct sigaction ours {};
    ours.sa_sigaction = arrive;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, &before_);
  }
  ~SlowPages() { sigaction(SIGSEGV, &before_, nullptr); }
  SlowPages(const SlowPages&) = delete;
  SlowPages& operator=(const SlowPages&) = delete;
  bool were_read() const { return !base_; }

 private:
  static void arrive(int, siginfo_t* fault, void*) {
    const auto* const at = static_cast<unsigned char*>(fault->si_addr);
    unsigned char* const base = base_.exchange(nullptr);
    if (!base || at < base || at >= base + bytes) {
      std::signal(SIGSEGV, SIG_DFL);
      return;
    }
    usleep(20000);
    mprotect(base, bytes, PROT_READ | PROT_WRITE);
  }
  static inline std::atomic<unsigned char*> base_{nullptr};
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("a chunk does not go before it is packed", "[relay]") {
  const Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  static constexpr std::size_t bytes = std::size_t{6} << 20, in_last_chunk = std::size_t{5} << 20;
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {100, 100}, bytes);
    if (rank.me == 0) {
      const SparseMemory source(bytes);
      std::fill_n(source.data(), bytes, '1');
      const SlowPages slow(source.data() + in_last_chunk);
      rank.window->start_stream({1});
      rank.window->put({source.data(), bytes, 1, 0});
      rank.window->complete_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
      EXPECT(slow.were_read());
    } else {
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
      EXPECT(std::count(rank.memory.begin(), rank.memory.end(), '1') == bytes);
    }
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("a relayed window takes memory by what epochs put, and not by its size", "[relay]") {
  const std::size_t operations = GENERATE(1, 100);
  // Then landing memory is there before anybody asks, so that the service need not allocate.
  const bool waits_for_launches = GENERATE(false, true);
  CAPTURE(operations, waits_for_launches);
  static constexpr std::size_t window_bytes = std::size_t{1} << 36, largest = 300000;
  const std::size_t unasked = waits_for_launches ? std::size_t{32} << 20 : 0;
  constexpr unsigned epochs = 60;
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 100;
  auto host = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    CountingDevice device(*host);
    if (waits_for_launches) device.wait_for_launches();
    SparseMemory memory(window_bytes);
    const int me = bootstrap.rank(), other = 1 - me;
    OperationBudget budget(std::make_unique<FakeNetwork>(Capacity{operations, 1000}, 3u, false), settings);
    HostStream* const stream = create_host_stream();
    {
      Window window("wide", {memory.data(), window_bytes, 1}, bootstrap, device, settings, &budget);
      const std::size_t without_epochs = device.pinned();
      EXPECT(without_epochs < (std::size_t{1} << 20));
      std::vector<unsigned char> source(2 * largest);
      bool right = true;
      for (unsigned epoch = 1; epoch <= epochs; ++epoch) {  // each with a plan of its own
        std::mt19937_64 random(epoch);
        const std::size_t bytes = 1 + random() % largest, at = random() % (window_bytes / 2),
                          also_at = window_bytes / 2 + random() % (window_bytes / 2 - largest);
        window.post_stream({other}, stream);
        then(stream, [&source, epoch, me] {
          for (std::size_t i = 0; i < source.size(); ++i) source[i] = byte_of(epoch, me, i);
        });
        window.start_stream({other});
        window.put({source.data(), bytes, other, static_cast<std::int64_t>(at)});
        window.put({source.data() + largest, bytes, other, static_cast<std::int64_t>(also_at)});
        window.complete_wait_stream(stream);
        then(stream, [&right, &memory, epoch, other, bytes, at, also_at] {
          for (std::size_t i = 0; i < bytes; ++i)
            if (memory.data()[at + i] != byte_of(epoch, other, i) ||
                memory.data()[also_at + i] != byte_of(epoch, other, largest + i))
              right = false;
        });
        EXPECT(stream->synchronize());
        // The puts of the largest plan, rounded up, on each side; and at the origin the blocks that plans still know.
        EXPECT(device.pinned() - without_epochs < 8 * largest + unasked);
      }
      EXPECT(right);
      EXPECT(window.drain());
      bootstrap.allgather(0);
    }
    EXPECT(device.pinned() == 0);
    destroy_host_stream(stream);
    bootstrap.allgather(0);
  });
}

TEST_CASE("where the target has no memory for what is put the window breaks on both sides, with the reason",
          "[relay]") {
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 0;
  settings.log = LogLevel::error;
  auto host = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    CountingDevice device(*host);
    constexpr std::size_t bytes = 1 << 20;
    Rank rank(bootstrap, device, settings, {100, 100}, bytes);
    const std::vector<char> data(bytes, 'x');
    const int other = 1 - rank.me;
    if (rank.me == 1) {
      rank.window->post_stream({other}, rank.stream);
      device.have_no_more_than(1000);
    }
    bootstrap.allgather(0);
    if (rank.me == 0) {
      rank.window->start_stream({other});
      rank.window->put({data.data(), bytes, other, 0});
      rank.window->complete_stream(rank.stream);
      EXPECT(!rank.window->drain());
    } else {
      rank.window->wait_stream(rank.stream);
      EXPECT(!rank.stream->synchronize());
      EXPECT(!rank.window->drain());
    }
    const std::string text = error_of([&] { rank.window->start_stream({}); }, Fault::synchronization);
    EXPECT(contains(text, rank.me == 0 ? "rank 1 has no memory for" : "no memory for what rank 0 puts"));
    bootstrap.allgather(0);
    rank.window.reset();
    bootstrap.allgather(0);
  });
}

TEST_CASE("a rank that finds no memory when an epoch first names another fails the call, which may be tried again",
          "[relay]") {
  Settings settings = relay_settings();
  settings.relay = GENERATE(true, false);
  auto host = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    CountingDevice device(*host);
    Rank rank(bootstrap, device, settings, {100, 100}, 64);
    EXPECT(device.pinned() == 0);
    const std::vector<int> other{1 - rank.me};
    const std::uint64_t value = 100 + static_cast<std::uint64_t>(rank.me);
    device.have_no_more_than(100);
    EXPECT(error_of([&] { rank.window->post_stream(other, rank.stream); }, Fault::memory) == "no such memory");
    EXPECT(error_of([&] { rank.window->start_stream(other); }, Fault::memory) == "no such memory");
    EXPECT(device.pinned() == 0);
    device.have_no_more_than(SIZE_MAX);
    for (int epoch = 0; epoch < 3; ++epoch) {
      rank.window->post_stream(other, rank.stream);
      rank.window->start_stream(other);
      rank.window->put({&value, 8, other[0], 0});
      rank.window->complete_wait_stream(rank.stream);
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(rank.window->drain());
    std::uint64_t got = 0;
    std::memcpy(&got, rank.memory.data(), sizeof got);
    EXPECT(got == 100 + static_cast<std::uint64_t>(other[0]));
    bootstrap.allgather(0);
  });
}

TEST_CASE("without the order that a network promises a staged put would be seen before its data", "[relay]") {
  const bool in_order = GENERATE(true, false);
  CAPTURE(in_order);
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 0;
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {100, 100}, 64);
    const std::string data = "123456789";
    if (rank.me == 0) {
      if (!in_order) rank.network->leave_out_writes_of(data.size());
      rank.window->start_stream({1});
      rank.window->put({data.data(), data.size(), 1, 8});
      rank.window->complete_stream(rank.stream);
    } else {
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
    }
    EXPECT(rank.stream->synchronize());
    if (rank.me == 1) EXPECT((std::string(rank.memory.begin() + 8, rank.memory.begin() + 17) == data) == in_order);
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("an origin does not reuse what its network may still read, even though the target has posted again",
          "[relay]") {
  Settings settings = relay_settings();
  settings.mailbox_slots = 1;
  const std::size_t eager = GENERATE(0, 1000);
  settings.nic_eager_bytes = eager;
  auto device = make_host_device(settings, 2);
  constexpr std::size_t bytes = std::size_t{6} << 20;
  std::atomic<int> sent{0}, received{0};
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {100, 100}, bytes);
    const std::vector<char> data(bytes, '1');
    if (rank.me == 0) {
      // In chunks, which all together are one epoch's.
      rank.window->start_stream({1});
      rank.window->put({data.data(), bytes, 1, 0});
      rank.window->complete_stream(rank.stream);
      EXPECT(rank.window->drain());
      rank.network->hold_back_ends(true);
      for (int epoch = 0; epoch < 2; ++epoch) {
        rank.window->start_stream({1});
        rank.window->put({data.data(), 8, 1, 0});
        rank.window->complete_stream(rank.stream);
        then(rank.stream, [&] { ++sent; });
      }
      EXPECT(soon([&] { return received == 1; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT(sent == 1);
      rank.network->hold_back_ends(false);
      EXPECT(soon([&] { return received == 2; }));
    } else {
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
      for (int epoch = 0; epoch < 2; ++epoch) {
        rank.window->post_stream({0}, rank.stream);
        rank.window->wait_stream(rank.stream);
        then(rank.stream, [&] { ++received; });
      }
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("a rank that owes a post or data, and gives no sign of life, breaks a relayed window", "[relay]") {
  const bool owes_post = GENERATE(true, false);
  Settings settings = relay_settings();
  settings.timeout_seconds = 0.2;
  settings.fail_on_timeout = false;  // it has to be found out
  settings.log = LogLevel::error;
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {100, 100}, 64);
    const char data[9] = "12345678";
    if (rank.me == 0) {
      rank.network->let_peers_live(false);
      if (owes_post) {
        rank.window->start_stream({1});
        rank.window->put({data, 8, 1, 0});
        rank.window->complete_stream(rank.stream);
        rank.stream->synchronize();
      } else {
        rank.window->post_stream({1}, rank.stream);
        // On a busy machine it is found out before this.
        const std::string text = error_of([&] { rank.window->wait_stream(rank.stream); }, Fault::synchronization);
        EXPECT(!rank.stream->synchronize() || !text.empty());
      }
      EXPECT(!rank.window->drain());
      const std::string text = error_of([&] { rank.window->start_stream({1}); }, Fault::synchronization);
      EXPECT(contains(text, "rank 1"));
      EXPECT(contains(text, "no sign of life"));
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("a relayed window is drained when the posts of all that it has sent have come", "[relay]") {
  const Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  std::atomic<bool> posting{false};
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {100, 100}, 64);
    const char data[9] = "12345678";
    if (rank.me == 0) {
      rank.window->start_stream({1});
      rank.window->put({data, 8, 1, 0});
      rank.window->complete_stream(rank.stream);  // the relay waits for the post
      EXPECT(rank.stream->synchronize());
      std::atomic<bool> early{false};
      std::thread drains([&] {
        EXPECT(rank.window->drain());
        early = !posting;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      posting = true;
      drains.join();
      EXPECT(!early);
    } else {
      while (!posting) std::this_thread::yield();
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
      EXPECT(rank.window->drain());
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("a network error breaks a relayed window and names the rank", "[relay]") {
  const Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {8, 8}, 64);
    const std::vector<int> peer{1 - rank.me};
    const std::vector<NetworkAddress> addresses = bootstrap.allgather(rank.network->address());
    const char data[9] = "12345678";
    bootstrap.allgather(0);
    if (rank.me == 0) {
      rank.network->fail(rank.network->connect(addresses[1]));
      rank.window->post_stream(peer, rank.stream);
      rank.window->start_stream(peer);
      rank.window->put({data, 8, 1, 0});
      rank.window->complete_wait_stream(rank.stream);  // waits for what never comes
      EXPECT(!rank.stream->synchronize());
      EXPECT(!rank.window->drain());
      const std::string text = error_of([&] { rank.window->start_stream(peer); }, Fault::synchronization);
      EXPECT(contains(text, "rank 1"));
      EXPECT(contains(text, "the cable is cut"));
      rank.window.reset();
      EXPECT(rank.budget.total() < 8);
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("what goes wrong in the relay's thread breaks its window, and no more", "[relay]") {
  const bool in_progress = GENERATE(false, true);
  CAPTURE(in_progress);
  const Settings settings = relay_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {8, 8}, 64);
    const std::vector<int> peer{1 - rank.me};
    if (rank.me == 0) {
      rank.network->run_out_of_memory(!in_progress);
      if (in_progress) rank.network->fail_once_in_progress();
      rank.window->post_stream(peer, rank.stream);
      EXPECT(!rank.window->drain());
      const std::string text = error_of([&] { rank.window->start_stream({}); }, Fault::synchronization);
      EXPECT(contains(text, "broken: std::bad_alloc"));
      (void)rank.stream->synchronize();  // the window may have broken before the stream came to the post, or after
      rank.window.reset();
      rank.network->run_out_of_memory(false);
    }
    bootstrap.allgather(0);
    rank.window.reset();
    Rank next(bootstrap, *device, settings, {8, 8}, 64);
    next.window->post_stream(peer, next.stream);
    next.window->start_stream(peer);
    next.window->complete_wait_stream(next.stream);
    EXPECT(next.stream->synchronize());
    EXPECT(next.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("with the policy application the relay waits for room, as no call is left that could fail", "[relay]") {
  Settings settings = relay_settings();
  settings.throttle = Throttle::application;
  settings.nic_eager_bytes = 0;
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {2, 2}, 64);
    constexpr int epochs = 20;
    char data[9] = "12345678";
    for (int epoch = 0; epoch < epochs; ++epoch) {
      if (rank.me == 0) {
        data[0] = static_cast<char>('A' + epoch);
        rank.window->start_stream({1});
        rank.window->put({data, 8, 1, 0});  // the data, the lines, and the signal: three operations, in stages
        rank.window->complete_stream(rank.stream);
      } else {
        rank.window->post_stream({0}, rank.stream);
        rank.window->wait_stream(rank.stream);
      }
      EXPECT(rank.stream->synchronize());
      if (rank.me == 1) EXPECT(rank.memory[0] == static_cast<unsigned char>('A' + epoch));
    }
    EXPECT(rank.window->drain());
    EXPECT(rank.network->most_operations() <= 2);
    bootstrap.allgather(0);
  });
}

TEST_CASE("puts of an epoch whose complete failed are counted, and no more are taken than fit", "[relay]") {
  const Settings settings = relay_settings();
  struct Refusing final : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    std::shared_ptr<const void> upload(const void* data, std::size_t bytes) override {
      if (refuses) throw Error(Fault::memory, "no such memory");
      return ForwardingDevice::upload(data, bytes);
    }
    std::atomic<bool> refuses{false};
  };
  auto host = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Refusing device(*host);
    Rank rank(bootstrap, device, settings, {8, 8}, 8008);
    const char data[9] = "12345678";
    const auto put = [&](int first, int end) {
      for (int i = first; i < end; ++i) rank.window->put({data, 8, 1, 8 * i});
    };
    const auto expose = [&] {
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
    };
    if (rank.me == 1) {
      for (int epoch = 0; epoch < 3; ++epoch) expose();
      EXPECT(rank.memory[8 * 999] == '1');
      EXPECT(rank.memory[8 * 1000] == 0);
    } else {
      for (const int first : {0, 490}) {
        rank.window->start_stream({1});
        put(first, 500);
        rank.window->complete_stream(rank.stream);
      }
      EXPECT(rank.stream->synchronize());
      rank.window->start_stream({1});
      put(0, 400);  // as the first epoch
      device.refuses = true;
      EXPECT(!error_of([&] { rank.window->complete_stream(rank.stream); }, Fault::memory).empty());
      device.refuses = false;
      put(400, 1000);
      EXPECT(contains(error_of([&] { put(1000, 1001); }, Fault::memory), "more than 1000 puts"));
      rank.window->complete_stream(rank.stream);
      EXPECT(rank.stream->synchronize());
    }
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
}

TEST_CASE("where the network has no room the relay asks again", "[relay]") {
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 0;
  const long good = GENERATE(0, 1, 2);
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {1, 1}, 64);
    const char data[9] = "12345678";
    for (int epoch = 0; epoch < 5; ++epoch) {
      rank.network->refuse(good, Fault::memory);
      if (rank.me == 0) {
        rank.window->start_stream({1});
        for (int put = 0; put < 4; ++put) rank.window->put({data, 8, 1, 8 * put});
        rank.window->complete_stream(rank.stream);
      } else {
        rank.window->post_stream({0}, rank.stream);
        rank.window->wait_stream(rank.stream);
      }
      // In the first epoch an ask, the data, the lines and the signal: each alone.
      if (rank.me == 0 && epoch == 0) EXPECT(soon([&] { return rank.network->refused() > 0; }));
      if (rank.me == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      rank.network->accept();
      EXPECT(rank.stream->synchronize());
      if (rank.me == 1) EXPECT(rank.memory[24] == '1');
    }
    EXPECT(rank.window->drain());
    EXPECT(rank.budget.total() == 1);
    bootstrap.allgather(0);
  });
}

TEST_CASE("what an epoch stages for a target goes in one operation", "[relay]") {
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 0;
  auto device = make_host_device(settings, 2);
  ThreadRanks(2, 1).run([&](Bootstrap& bootstrap) {
    constexpr std::size_t bytes = 8000;
    Rank rank(bootstrap, *device, settings, {100, 100}, bytes);
    const std::vector<char> data(bytes, 'x');
    if (rank.me == 0) {
      rank.window->start_stream({1});
      rank.window->put({data.data(), bytes / 2, 1, 0});
      rank.window->put({data.data(), bytes / 2, 1, bytes / 2});
      rank.window->complete_stream(rank.stream);
    } else {
      rank.window->post_stream({0}, rank.stream);
      rank.window->wait_stream(rank.stream);
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(rank.window->drain());
    if (rank.me == 0) EXPECT(rank.network->most_operations() == 3);  // the data of both puts, the lines, the signal
    bootstrap.allgather(0);
  });
}

TEST_CASE("without a network relayed ranks are refused, and the reason is told", "[relay]") {
  const Settings settings = relay_settings();
  auto device = make_host_device(settings, 4);
  ThreadRanks(4, 2).run([&](Bootstrap& bootstrap) {
    std::vector<unsigned char> memory(64);
    Window window("alone", {memory.data(), 64, 1}, bootstrap, *device, settings, nullptr, "no cable");
    HostStream* stream = create_host_stream();
    const int here = bootstrap.rank() ^ 1, there = bootstrap.rank() ^ 2;
    EXPECT(contains(error_of([&] { window.post_stream({here, there}, stream); }, Fault::unsupported), "no cable"));
    EXPECT(contains(error_of([&] { window.start_stream({there}); }, Fault::unsupported), std::to_string(there)));
    window.post_stream({here}, stream);
    window.start_stream({here});
    window.complete_wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(window.drain());
    destroy_host_stream(stream);
    bootstrap.allgather(0);
  });
}

namespace {

/// A window of two ranks, as one of the many of rank 0.
struct PairWindow {
  PairWindow(Bootstrap& bootstrap, Device& device, const Settings& settings, OperationBudget& budget, std::size_t bytes)
      : memory(bytes),
        window(new Window("pair", {memory.data(), bytes, 1}, bootstrap, device, settings, &budget)),
        stream(create_host_stream()) {}
  ~PairWindow() { destroy_host_stream(stream); }
  std::vector<unsigned char> memory;
  std::unique_ptr<Window> window;
  HostStream* const stream;
};

}  // namespace

TEST_CASE("what needs the whole budget is not overtaken for long by what needs little", "[relay]") {
  Settings settings = relay_settings();
  settings.nic_eager_bytes = 2000;
  constexpr int ranks = 5, most_epochs = 400;
  constexpr std::size_t part = 2000;  // for some time on this network
  auto device = make_host_device(settings, ranks);
  std::atomic<bool> large_is_there{false};
  std::atomic<int> overtaken{0};
  ThreadRanks(ranks, 1).run([&](Bootstrap& bootstrap) {
    Rank rank(bootstrap, *device, settings, {4, 1000}, part);
    PairWindow large(bootstrap, *device, settings, rank.budget, 3 * part);
    const std::vector<char> data(part, 'x');
    // Rank 0 sends small epochs to ranks 2, 3 and 4, which go on whatever becomes of the large one to rank 1.
    std::vector<HostStream*> streams;
    for (int i = 0; i < ranks; ++i) streams.push_back(create_host_stream());
    bootstrap.allgather(0);
    if (rank.me == 0) {
      for (int epoch = 0; epoch < most_epochs; ++epoch) {
        if (epoch == 20) {
          large.window->start_stream({1});
          for (std::size_t i = 0; i < 3; ++i)
            large.window->put({data.data(), part, 1, static_cast<std::int64_t>(i * part)});
          large.window->complete_stream(large.stream);
        }
        for (int target : {2, 3, 4}) {
          rank.window->start_stream({target});
          rank.window->put({data.data(), part, target, 0});
          rank.window->complete_stream(streams[static_cast<std::size_t>(target)]);
        }
      }
    } else if (rank.me == 1) {
      large.window->post_stream({0}, large.stream);
      large.window->wait_stream(large.stream);
      then(large.stream, [&] { large_is_there = true; });
    } else {
      for (int epoch = 0; epoch < most_epochs; ++epoch) {
        rank.window->post_stream({0}, rank.stream);
        rank.window->wait_stream(rank.stream);
        if (epoch >= 20 && rank.me == 2) then(rank.stream, [&] { overtaken += !large_is_there; });
      }
    }
    for (HostStream* stream : streams) {
      EXPECT(stream->synchronize());
      destroy_host_stream(stream);
    }
    EXPECT(rank.stream->synchronize());
    EXPECT(large.stream->synchronize());
    EXPECT(large.window->drain());
    EXPECT(rank.window->drain());
    bootstrap.allgather(0);
  });
  INFO("epochs of another pair meanwhile: " << overtaken);
  CHECK(overtaken < most_epochs / 4);
}
