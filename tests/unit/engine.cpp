// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The engine end to end, with ranks as threads: every path into a window, in random patterns.
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "base/error.h"
#include "device/host/host_device.h"
#include "device/host/stream.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

Settings quiet_settings() {
  Settings settings = Settings::from_environment();
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  return settings;
}

unsigned soak_epochs() {
  const char* text = std::getenv("SOAK_EPOCHS");
  return text ? static_cast<unsigned>(std::atoi(text)) : 200;
}

/// What rank `origin` puts into `target` in an epoch: known to both from the seed.
struct Message {
  std::size_t offset;
  std::size_t bytes;
};

/// Random puts for one ordered pair and epoch, disjoint within the pair's part of the window.
std::vector<Message> messages(unsigned seed, unsigned epoch, int origin, int target, std::size_t part) {
  std::mt19937 random(seed * 7919u + epoch * 131u + static_cast<unsigned>(origin * 17 + target));
  std::vector<Message> all;
  std::size_t at = 0;
  const unsigned count = random() % 4;
  const std::size_t sizes[] = {0, 1, 7, 8, 9, 200, 4096, 30000};
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t bytes = sizes[random() % 8];
    const std::size_t gap = random() % 13;
    if (at + gap + bytes > part) break;
    all.push_back({at + gap, bytes});
    at += gap + bytes;
  }
  return all;
}

bool has_edge(unsigned seed, unsigned epoch, int origin, int target) {
  std::mt19937 random(seed * 31u + epoch * 977u + static_cast<unsigned>(origin * 101 + target));
  return random() % 3 != 0;
}

unsigned char byte_of(unsigned epoch, int origin, std::size_t at) {
  return static_cast<unsigned char>(epoch * 37 + static_cast<unsigned>(origin) * 11 + at * 3 + at / 256);
}

template <class Function>
bool throws(Function function) {
  try {
    function();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void random_epochs(int ranks, unsigned seed, bool mappable, bool merge, std::uint32_t slots, unsigned epochs,
                   Waits waits = Waits::kernel, bool free_posts = false) {
  Settings settings = quiet_settings();
  settings.posts = free_posts ? Posts::free : Posts::prompt;
  settings.waits = waits;
  settings.merge = merge;
  settings.mailbox_slots = slots;
  const std::size_t part = 70000;
  auto device = make_host_device(settings, ranks);
  std::atomic<long> wrong{0};
  ThreadRanks(ranks).run([&](Bootstrap& bootstrap) {
    const int me = bootstrap.rank();
    WindowMemory memory(*device, part * static_cast<std::size_t>(ranks), mappable);
    Window window("test", memory.local(), bootstrap, *device, settings);
    ScopedStream stream;
    std::vector<unsigned char> source(part * static_cast<std::size_t>(ranks));
    std::vector<unsigned char> expected(source.size(), 0);
    for (unsigned epoch = 1; epoch <= epochs; ++epoch) {
      std::vector<int> origins, targets;
      for (int rank = 0; rank < ranks; ++rank) {
        if (has_edge(seed, epoch, rank, me)) origins.push_back(rank);
        if (has_edge(seed, epoch, me, rank)) targets.push_back(rank);
      }
      window.post_stream(origins, stream);
      then(stream.operator->(), [&, epoch] {
        std::mt19937 random(seed + epoch * 13u + static_cast<unsigned>(me));
        if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        for (std::size_t at = 0; at < source.size(); ++at) source[at] = byte_of(epoch, me, at);
      });
      window.start_stream(targets);
      for (int target : targets)
        for (const Message& m : messages(seed, epoch, me, target, part))
          window.put({source.data() + m.offset, m.bytes, target,
                      static_cast<std::int64_t>(part * static_cast<std::size_t>(me) + m.offset)});
      if (epoch % 3 == 0) {
        window.complete_wait_stream(stream);
      } else {
        window.complete_stream(stream);
        window.wait_stream(stream);
      }
      then(stream.operator->(), [&, epoch, origins] {
        for (int origin : origins)
          for (const Message& m : messages(seed, epoch, origin, me, part))
            for (std::size_t i = 0; i < m.bytes; ++i)
              expected[part * static_cast<std::size_t>(origin) + m.offset + i] = byte_of(epoch, origin, m.offset + i);
        if (std::memcmp(expected.data(), memory.data(), expected.size()) != 0) ++wrong;
      });
    }
    if (!stream->synchronize()) ++wrong;
    if (!window.drain()) ++wrong;
    bootstrap.allgather(0);  // peers may still write into this rank's memory
  });
  CHECK(wrong.load() == 0);
}

}  // namespace

TEST_CASE("random epochs over three ranks deliver every byte and touch no other", "[engine]") {
  const bool mappable = GENERATE(true, false);
  const bool merge = GENERATE(true, false);
  const std::uint32_t slots = GENERATE(1u, 4u);
  CAPTURE(mappable, merge, slots);
  random_epochs(3, 42u + slots, mappable, merge, slots, soak_epochs());
}

TEST_CASE("free posts change nothing but when they go", "[engine]") {
  const bool mappable = GENERATE(true, false);
  const std::uint32_t slots = GENERATE(1u, 4u);
  CAPTURE(mappable, slots);
  random_epochs(3, 91u + slots, mappable, true, slots, soak_epochs(), Waits::kernel, true);
}

TEST_CASE("guards in front of all kernels change nothing but the waits", "[engine]") {
  const bool mappable = GENERATE(true, false);
  const bool merge = GENERATE(true, false);
  const std::uint32_t slots = GENERATE(1u, 4u);
  CAPTURE(mappable, merge, slots);
  random_epochs(3, 7u + slots, mappable, merge, slots, soak_epochs() / 4, Waits::memory);
}

TEST_CASE("an origin may be ahead of the posts of its target by one less than the mailbox has slots", "[engine]") {
  Settings settings = quiet_settings();
  settings.mailbox_slots = 4;
  auto device = make_host_device(settings, 2);
  std::atomic<int> sent{0};
  std::atomic<bool> go{false};
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 64, true);
    Window window("ahead", memory.local(), bootstrap, *device, settings);
    ScopedStream stream;
    const long value = 7;
    if (bootstrap.rank() == 0) {
      for (int epoch = 0; epoch < 5; ++epoch) {
        window.start_stream({1});
        window.put({&value, sizeof value, 1, 0});
        window.complete_stream(stream);
        then(stream.operator->(), [&] { ++sent; });
      }
      while (sent < 3) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT(sent == 3);
      go = true;
      EXPECT(stream->synchronize());
    } else {
      while (!go) std::this_thread::yield();
      for (int epoch = 0; epoch < 5; ++epoch) {
        window.post_stream({0}, stream);
        window.wait_stream(stream);
      }
      EXPECT(stream->synchronize());
      EXPECT(*reinterpret_cast<long*>(memory.data()) == 7);
    }
    bootstrap.allgather(0);
  });
  CHECK(sent == 5);
}

TEST_CASE("a lazy post is carried by the next call on its stream, and by no other", "[engine]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 200000, true);
    LocalMemory local = memory.local();
    local.lazy_post = true;
    Window window("lazy", local, bootstrap, *device, settings);
    ScopedStream stream, other;
    std::vector<char> large(100000, 'x');  // direct: needs the post
    const auto start_and_put = [&] {
      window.start_stream({0});
      window.put({large.data(), large.size(), 0, 0});
    };
    window.post_stream({0}, stream);
    start_and_put();
    window.complete_stream(stream);
    window.wait_stream(stream);

    window.post_stream({0}, stream);
    start_and_put();
    window.complete_wait_stream(stream);
    EXPECT(stream->synchronize());

    window.post_stream({0}, stream);
    start_and_put();
    window.complete_stream(other);
    window.wait_stream(stream);

    window.post_stream({}, stream);  // nothing to post
    window.wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(other->synchronize());
    EXPECT(window.drain());
    EXPECT(memory.data()[99999] == 'x');
  });
}

namespace {

/// Each stream is in a capture, while `capture` is not 0.
class CapturingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::uint64_t check_stream(Stream) const override { return capture; }
  std::uint64_t capture = 0;
};

}  // namespace

TEST_CASE("a lazy post in a capture that is given up does not lock its window", "[engine]") {
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    CapturingDevice device(*host);
    WindowMemory memory(*host, 64, true);
    LocalMemory local = memory.local();
    local.lazy_post = true;
    Window window("lazy", local, bootstrap, device, settings);
    ScopedStream stream;
    const auto post_in = [&](std::uint64_t capture) {
      device.capture = capture;
      window.post_stream({0}, stream);
    };
    post_in(1);
    device.capture = 2;  // another one, in which nothing may be closed
    EXPECT(throws([&] { window.wait_stream(stream); }));
    EXPECT(throws([&] { window.post_stream({0}, stream); }));
    device.capture = 0;
    EXPECT(throws([&] { window.wait_stream(stream); }));

    window.post_stream({0}, stream);  // as if nothing had been
    window.start_stream({0});
    window.complete_stream(stream);
    window.wait_stream(stream);
    EXPECT(stream->synchronize());

    post_in(3);
    device.capture = 0;
    window.check_free();
    EXPECT(window.drain());
  });
}

TEST_CASE("a lazy post comes after what its own stream had to do before", "[engine]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 100000, true);
    LocalMemory local = memory.local();
    local.lazy_post = true;
    Window window("lazy", local, bootstrap, *device, settings);
    std::atomic<bool> used{false}, early{false}, sent{false};
    ScopedStream stream, other;
    const std::vector<char> large(100000, 'x');  // direct: needs the post
    then(stream.operator->(), [&] {
      // The program uses its window; a moment that ends soon when somebody writes into it meanwhile.
      for (int i = 0; i < 100 && !sent; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      used = true;
    });
    window.post_stream({0}, stream);
    window.start_stream({0});
    window.put({large.data(), large.size(), 0, 0});
    window.complete_stream(other);
    then(other.operator->(), [&] {
      early = !used;
      sent = true;
    });
    window.wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(other->synchronize());
    EXPECT(!early);
    EXPECT(window.drain());
  });
}

TEST_CASE("destroying a stream tells of a released wait, as synchronizing does", "[engine]") {
  Settings settings = quiet_settings();
  settings.timeout_seconds = 0.1 * test::time_scale();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 64, true);
    Window window("stuck", memory.local(), bootstrap, *device, settings);
    if (bootstrap.rank() == 0) {
      HostStream* stream = create_host_stream();
      window.post_stream({1}, stream);
      window.wait_stream(stream);
      EXPECT(!destroy_host_stream(stream));
    }
    bootstrap.allgather(0);
  });
}

TEST_CASE("a lazy post survives the end of its stream", "[engine]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 100000, true);
    LocalMemory local = memory.local();
    local.lazy_post = true;
    Window window("lazy", local, bootstrap, *device, settings);
    std::vector<char> large(100000, 'x');  // direct: needs the post
    ScopedStream stream;                   // before the other, whose place it would be given
    HostStream* gone = create_host_stream();
    window.post_stream({0}, gone);
    destroy_host_stream(gone);
    window.start_stream({0});
    window.put({large.data(), large.size(), 0, 0});
    window.complete_stream(stream);
    window.wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(window.drain());
    EXPECT(memory.data()[99999] == 'x');
  });
}

TEST_CASE("puts that overlap stay within the mailbox, however many", "[engine]") {
  Settings settings = quiet_settings();
  settings.eager_bytes = 1024 * 1024;
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 80, false);
    Window window("overlap", memory.local(), bootstrap, *device, settings);
    ScopedStream stream;
    const std::vector<char> text(80, 'o');
    const int peer = 1 - bootstrap.rank();
    for (int epoch = 0; epoch < 8; ++epoch) {
      window.post_stream({peer}, stream);
      window.start_stream({peer});
      for (std::uint32_t i = 0; i < max_staged_puts; ++i) window.put({text.data(), text.size(), peer, 0});
      EXPECT(throws([&] { window.put({text.data(), 1, peer, 0}); }));
      window.complete_wait_stream(stream);
    }
    // Of another group, so that no earlier epoch is followed: what those had does not count.
    window.post_stream({0, 1}, stream);
    window.start_stream({0, 1});
    for (std::uint32_t i = 0; i < max_staged_puts; ++i) window.put({text.data(), 1, peer, 0});
    window.complete_wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(memory.data()[79] == 'o');
    bootstrap.allgather(0);
  });
}

TEST_CASE("puts with more descriptors than a slot has lines go direct, however few bytes they are", "[engine]") {
  Settings settings = quiet_settings();
  settings.eager_bytes = 64;
  auto device = make_host_device(settings, 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    constexpr std::uint64_t bytes = 64;
    WindowMemory memory(*device, bytes, true);
    Window window("lines", memory.local(), bootstrap, *device, settings);
    ScopedStream stream;
    std::string source;
    for (std::uint64_t i = 0; i < bytes; ++i) source += static_cast<char>('0' + i);
    window.post_stream({0}, stream);
    window.start_stream({0});
    for (std::uint64_t i = 0; i < bytes; ++i) window.put({source.data() + i, 1, 0, static_cast<std::int64_t>(i)});
    window.complete_stream(stream);
    const Stats stats = window.stats();
    EXPECT(stats.bytes_mailbox == 0);
    EXPECT(stats.bytes_direct == bytes);
    if (stats.bytes_mailbox == 0) window.wait_stream(stream);  // else it might wait for ever for lines of another slot
    EXPECT(stream->synchronize());
    EXPECT(std::memcmp(memory.data(), source.data(), bytes) == 0);
  });
}

TEST_CASE("rules of puts are checked when they are recorded, and the epoch goes on", "[engine]") {
  const Settings settings = quiet_settings();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    const bool first = bootstrap.rank() == 0;
    WindowMemory memory(*device, first ? 0 : 100, true);
    Window window("rules", {first ? nullptr : memory.data(), first ? 0u : 100u, 10}, bootstrap, *device, settings);
    ScopedStream stream;
    const char data[100] = "0123456789";
    const auto fault = [&](const Put& put) {
      try {
        window.put(put);
      } catch (const Error& error) {
        return error.fault();
      }
      return Fault::other;
    };
    if (first) {
      window.start_stream({1});
      EXPECT(fault({data, 1, 2, 0}) == Fault::rank);
      EXPECT(fault({data, 1, -7, 0}) == Fault::rank);
      EXPECT(fault({data, 1, 0, 0}) == Fault::synchronization);
      EXPECT(fault({data, 1, 1, -1}) == Fault::displacement);
      EXPECT(fault({data, 1, 1, 10}) == Fault::range);
      EXPECT(fault({data, 11, 1, 9}) == Fault::range);
      EXPECT(fault({data, 1, 1, INT64_MAX}) == Fault::range);
      EXPECT(fault({data, 1, 1, 1844674407370955162}) == Fault::range);  // times 10 that is 4, in 64 bits
      EXPECT(fault({data, SIZE_MAX, 1, 1}) == Fault::range);
      window.put({data, 0, 1, 99});
      window.put({data, 10, 1, 9});
      window.complete_stream(stream);
      window.start_stream({});
      EXPECT(fault({data, 1, 1, 0}) == Fault::synchronization);  // of the epoch before
      window.complete_stream(stream);
    } else {
      window.post_stream({0}, stream);
      window.wait_stream(stream);
    }
    EXPECT(stream->synchronize());
    if (!first) EXPECT(std::string(reinterpret_cast<char*>(memory.data()) + 90, 10) == "0123456789");
    bootstrap.allgather(0);
  });
}

TEST_CASE("an endless wait is reported, released and then an error", "[engine]") {
  Settings settings = quiet_settings();
  settings.timeout_seconds = 0.2 * test::time_scale();
  auto device = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(*device, 64, true);
    Window window("stuck", memory.local(), bootstrap, *device, settings);
    ScopedStream stream;
    if (bootstrap.rank() == 0) {
      window.post_stream({1}, stream);
      window.wait_stream(stream);
      EXPECT(!stream->synchronize());
      EXPECT(!window.drain());
      EXPECT(throws([&] { window.post_stream({1}, stream); }));
      EXPECT(!throws([&] { window.check_ordinary(false, {}, [](const EpochState& state) { state.check_free(); }); }));
    }
    bootstrap.allgather(0);
  });
}

namespace {

/// An epoch of two ranks with each other.
void swap_nothing(Window& window, Bootstrap& bootstrap, Stream stream) {
  window.post_stream({1 - bootstrap.rank()}, stream);
  window.start_stream({1 - bootstrap.rank()});
  window.complete_wait_stream(stream);
  EXPECT(window.drain());
  bootstrap.allgather(0);
}

}  // namespace

// A GPU's post may still be under way when the epoch that it opened is over (protocol.h).
TEST_CASE("a window that ends looks for late posts until they are there", "[engine]") {
  class LatePosts final : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    bool posts_may_be_late() const noexcept override { return true; }
    void read(void* to, const void* from, std::size_t bytes) override {
      ForwardingDevice::read(to, from, bytes);
      if (bytes == sizeof(PairWords) && late > 0) {
        --late;
        static_cast<PairWords*>(to)->posted = 0;
      }
    }
    int late = 0;
  };
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    LatePosts device(*host);
    WindowMemory memory(device, 64, true);
    auto window = std::make_unique<Window>("late", memory.local(), bootstrap, device, settings);
    ScopedStream stream;
    swap_nothing(*window, bootstrap, stream);
    device.late = 5;
    window = nullptr;
    EXPECT(device.late == 0);
    bootstrap.allgather(0);
  });
}

TEST_CASE("a window ends also where there is no memory to see how far its peers are", "[engine]") {
  class WithoutMemory final : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    bool posts_may_be_late() const noexcept override { return true; }
    void read(void* to, const void* from, std::size_t bytes) override {
      if (has_none) throw std::bad_alloc();
      ForwardingDevice::read(to, from, bytes);
    }
    std::atomic<bool> has_none{false};
  };
  const Settings settings = quiet_settings();
  auto host = make_host_device(settings, 2);
  WithoutMemory device(*host);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    WindowMemory memory(device, 64, true);
    auto window = std::make_unique<Window>("short", memory.local(), bootstrap, device, settings);
    ScopedStream stream;
    swap_nothing(*window, bootstrap, stream);
    device.has_none = true;
    window = nullptr;
    bootstrap.allgather(0);
  });
}
