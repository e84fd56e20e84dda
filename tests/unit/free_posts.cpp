// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Free posts (epoch/free_posts.h), with ranks as threads: programs that a promise to be lazy would hang.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/host/host_device.h"
#include "epoch/free_posts.h"
#include "epoch/window.h"
#include "forwarding_device.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "support/slowdown.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

constexpr std::size_t bytes = 4096;  // direct: so the origin waits for the post

Settings free_settings() {
  Settings settings = Settings::from_environment();
  settings.posts = Posts::free;
  settings.timeout_seconds = 30 * test::time_scale();
  settings.fail_on_timeout = true;
  return settings;
}

/// Counts what posts do beside the program's streams, and does it late.
class Counting final : public PostStreams {
 public:
  explicit Counting(PostStreams& to) : to_(to) {}
  std::shared_ptr<StreamPoint> new_point() override { return to_.new_point(); }
  void raise(const std::vector<PostRaise>& raised) override {
    ++raises;
    if (slow_raises) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    to_.raise(raised);
  }
  bool have_raised() noexcept override { return to_.have_raised(); }
  std::shared_ptr<StreamPoint> launch_behind(const std::shared_ptr<StreamPoint>& point, Launch&& launch) override {
    ++asides;
    return to_.launch_behind(point, std::move(launch));
  }
  void hold_back(Stream stream, bool captured, const std::shared_ptr<StreamPoint>& point) override {
    ++held_back;
    to_.hold_back(stream, captured, point);
  }
  std::atomic<int> raises{0}, asides{0}, held_back{0};
  std::atomic<bool> slow_raises{false};

 private:
  PostStreams& to_;
  std::minstd_rand random_{7};  // of the service's thread alone
};

/// The host device; what `captured` says of its streams is what a GPU would say of streams that are captured.
class TrackedDevice final : public ForwardingDevice {
 public:
  explicit TrackedDevice(Device& device) : ForwardingDevice(device), posts(*device.post_streams()) {}
  PostStreams* post_streams() override { return &posts; }
  std::uint64_t check_stream(Stream stream) const override {
    (void)ForwardingDevice::check_stream(stream);
    return captured;
  }
  Counting posts;
  std::atomic<std::uint64_t> captured{0};
};

/// A rank with a window of which each rank has its part, and what it takes to exchange.
struct Member {
  Member(Bootstrap& all, Device& its_device, const Settings& settings)
      : bootstrap(all),
        me(all.rank()),
        count(all.size()),
        device(its_device),
        memory(its_device, bytes * static_cast<std::size_t>(count), true),
        window("free", memory.local(), all, its_device, settings),
        data(bytes) {}
  ~Member() {
    EXPECT(window.drain());
    bootstrap.allgather(0);  // peers may still write here
  }
  int left() const { return (me + count - 1) % count; }
  int right() const { return (me + 1) % count; }
  void start_and_put(unsigned char value) {
    std::memset(data.data(), value, data.size());
    window.start_stream({right()});
    window.put({data.data(), data.size(), right(), static_cast<std::int64_t>(bytes) * me});
  }
  bool has(unsigned char value) {
    const unsigned char* const from = memory.data() + bytes * static_cast<std::size_t>(left());
    return std::all_of(from, from + bytes, [&](unsigned char c) { return c == value; });
  }
  Bootstrap& bootstrap;
  const int me, count;
  Device& device;
  WindowMemory memory;
  Window window;
  std::vector<unsigned char> data;
};

void sleep_until(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

struct Devices {
  std::unique_ptr<Device> host;
  TrackedDevice tracked;
  Devices(const Settings& settings, int ranks) : host(make_host_device(settings, ranks)), tracked(*host) {}
};

}  // namespace

TEST_CASE("a free post reaches a peer that the program waits for before its next call", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  std::atomic<bool> sent[2] = {{false}, {false}};
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream posts, sends;
    rank.window.post_stream({rank.left()}, posts);
    rank.start_and_put(1);
    // In another stream, so that it needs the peer's post, and carries none.
    rank.window.complete_stream(sends);
    EXPECT(sends->synchronize());
    sent[rank.me] = true;
    sleep_until(sent[rank.right()]);
    rank.window.wait_stream(posts);
    EXPECT(posts->synchronize());
    EXPECT(rank.has(1));
  });
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream stream;
    if (rank.me == 0) {
      rank.window.post_stream({1}, stream);
      bootstrap.allgather(0);  // when rank 1 has the post, and not before
    } else {
      rank.start_and_put(2);
      rank.window.complete_stream(stream);
      EXPECT(stream->synchronize());
      bootstrap.allgather(0);
    }
    if (rank.me == 0) {
      rank.window.wait_stream(stream);
      EXPECT(stream->synchronize());
      EXPECT(rank.has(2));
      EXPECT(rank.window.stats().posts_raised == 1);
    }
  });
}

TEST_CASE("a free post whose carrier is held up in its stream goes ahead of it", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  std::atomic<bool> arrived{false};
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream stream;
    if (rank.me == 0) {
      rank.window.post_stream({1}, stream);
      then(stream.operator->(), [&] { sleep_until(arrived); });  // for what rank 1 does with the post
      rank.window.wait_stream(stream);
    } else {
      rank.start_and_put(3);
      rank.window.complete_stream(stream);
      then(stream.operator->(), [&] { arrived = true; });
    }
    EXPECT(stream->synchronize());
    if (rank.me == 0) EXPECT(rank.has(3));
  });
}

TEST_CASE("a free post goes no sooner than what is before it in its stream", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  const int way = GENERATE(0, 1, 2);  // a raise; the next call in the same stream; in another one
  CAPTURE(way);
  std::atomic<bool> used{false}, early{false};
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream stream, other;
    if (rank.me == 0) {
      then(stream.operator->(), [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        used = true;
      });
      rank.window.post_stream({1}, stream);
      if (way == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      rank.window.wait_stream(way == 2 ? other : stream);
      EXPECT(other->synchronize());
    } else {
      rank.start_and_put(4);
      rank.window.complete_stream(stream);
      then(stream.operator->(), [&] { early = !used; });
    }
    EXPECT(stream->synchronize());
  });
  CHECK(!early);
}

TEST_CASE("the stream of a free post may be destroyed at once", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream stream;
    for (unsigned char epoch = 1; epoch <= 50; ++epoch) {
      HostStream* const gone = create_host_stream();
      rank.window.post_stream({rank.left()}, gone);
      EXPECT(destroy_host_stream(gone));
      rank.start_and_put(epoch);
      rank.window.complete_stream(stream);
      rank.window.wait_stream(stream);
      EXPECT(stream->synchronize());
      EXPECT(rank.has(epoch));
      bootstrap.allgather(0);
    }
  });
  CHECK(devices.tracked.posts.asides > 0);
}

TEST_CASE("posts that went aside count for those that go ahead", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream first, stream;
    for (unsigned char epoch = 1; epoch <= 4; ++epoch) {
      if (rank.me == 0) {
        rank.window.post_stream({1}, epoch % 2 != 0 ? first : stream);
        if (epoch % 2 == 0) bootstrap.allgather(0);  // when rank 1 has sent
        rank.window.wait_stream(stream);
        EXPECT(stream->synchronize());
        EXPECT(rank.has(epoch));
      } else {
        rank.start_and_put(epoch);
        rank.window.complete_stream(stream);
        EXPECT(stream->synchronize());
        if (epoch % 2 == 0) bootstrap.allgather(0);
      }
    }
  });
  CHECK(devices.tracked.posts.asides == 2);
  CHECK(devices.tracked.posts.raises >= 2);
}

TEST_CASE("a capture may begin behind a free post, and makes later ones prompt", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  ThreadRanks(2).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    ScopedStream stream;
    std::atomic<bool> go{false};
    then(stream.operator->(), [&] { sleep_until(go); });  // so that the post is on its way for a while
    rank.window.post_stream({rank.left()}, stream);
    bootstrap.allgather(0);
    devices.tracked.captured = 5;
    bootstrap.allgather(0);
    rank.start_and_put(6);
    rank.window.complete_stream(stream);
    rank.window.wait_stream(stream);
    rank.window.post_stream({rank.left()}, stream);  // behind the one before
    rank.start_and_put(7);
    rank.window.complete_wait_stream(stream);
    bootstrap.allgather(0);
    devices.tracked.captured = 0;
    bootstrap.allgather(0);
    go = true;
    EXPECT(stream->synchronize());
    EXPECT(rank.has(7));
    const int asides = devices.tracked.posts.asides;
    bootstrap.allgather(0);
    rank.window.post_stream({rank.left()}, stream);
    rank.start_and_put(8);
    rank.window.complete_wait_stream(stream);
    EXPECT(stream->synchronize());
    EXPECT(rank.has(8));
    EXPECT(devices.tracked.posts.asides == asides);
  });
  CHECK(devices.tracked.posts.asides == 2);
  CHECK(devices.tracked.posts.held_back == 2);
}

TEST_CASE("deadlines of free posts fall everywhere, and each epoch has its own data", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 3);
  devices.tracked.posts.slow_raises = true;
  const unsigned epochs = 400;
  std::atomic<long> wrong{0};
  ThreadRanks(3).run([&](Bootstrap& bootstrap) {
    Member rank(bootstrap, devices.tracked, settings);
    Member second(bootstrap, devices.tracked, settings);  // two posts are in flight
    ScopedStream streams[2];
    std::mt19937 random(17u + static_cast<unsigned>(rank.me));
    const auto pause = [&] {
      const unsigned how = random() % 8;
      if (how < 3) std::this_thread::sleep_for(std::chrono::microseconds(random() % 120));
      if (how == 3) std::this_thread::yield();
    };
    for (unsigned epoch = 1; epoch <= epochs; ++epoch) {
      const auto value = static_cast<unsigned char>(epoch);
      ScopedStream* const in = &streams[random() % 8 == 0];
      Stream posts = *in, calls = random() % 8 == 0 ? streams[0] : *in;
      rank.window.post_stream({rank.left()}, posts);
      pause();
      second.window.post_stream({second.left()}, posts);
      const unsigned nap = random() % 4 == 0 ? random() % 150 : 0;
      if (nap) then(in->operator->(), [nap] { std::this_thread::sleep_for(std::chrono::microseconds(nap)); });
      pause();
      for (Member* member : {&rank, &second}) {
        member->start_and_put(value);
        member->window.complete_stream(calls);
      }
      pause();
      rank.window.wait_stream(calls);
      second.window.wait_stream(calls);
      for (ScopedStream& stream : streams)
        if (!stream->synchronize()) ++wrong;
      if (!rank.has(value) || !second.has(value)) ++wrong;
    }
  });
  CHECK(wrong == 0);
  CHECK(devices.tracked.posts.raises > 0);
}

TEST_CASE("nothing is raised once a window has drained", "[free]") {
  const Settings settings = free_settings();
  Devices devices(settings, 2);
  for (int round = 0; round < 30; ++round) {
    ThreadRanks(2).run([&](Bootstrap& bootstrap) {
      Member rank(bootstrap, devices.tracked, settings);
      ScopedStream stream;
      rank.window.post_stream({rank.left()}, stream);
      rank.start_and_put(9);
      rank.window.complete_wait_stream(stream);
      EXPECT(rank.window.drain());
      bootstrap.allgather(0);
      const int raises = devices.tracked.posts.raises;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT(devices.tracked.posts.raises == raises);
      bootstrap.allgather(0);
    });
  }
}

namespace {

/// Points that pass when the test says so, and raises that are only written down.
class Marked final : public PostStreams {
 public:
  std::shared_ptr<StreamPoint> new_point() override { return std::make_shared<Point>(*this); }
  void raise(const std::vector<PostRaise>& raises) override { raised = raises.front().epochs; }
  bool have_raised() noexcept override { return true; }
  std::shared_ptr<StreamPoint> launch_behind(const std::shared_ptr<StreamPoint>& point, Launch&&) override {
    return point;
  }
  void hold_back(Stream, bool, const std::shared_ptr<StreamPoint>&) override {}
  std::atomic<std::uint64_t> passed{0}, raised{0}, set{0};
  std::atomic<std::uint64_t> held{0};  ///< this one does not pass

 private:
  struct Point final : StreamPoint {
    explicit Point(Marked& its_streams) : streams(its_streams) {}
    void set(Stream) override { number = ++streams.set; }
    bool passed() noexcept override { return number <= streams.passed && number != streams.held; }
    Marked& streams;
    std::atomic<std::uint64_t> number{0};
  };
};

struct NoStall final : StallHandler {
  double patience() const override { return 0; }
  bool stalled(Call, const std::string&, double) override { return false; }
  void failed(Call, const std::string&) override {}
};

/// Posts of a window to one origin.
class Posting {
 public:
  explicit Posting(bool always) : posts(streams, stall_, always) {
    plan_.posts.on_host.push_back(PostPeer{nullptr, nullptr, nullptr, 0, false});
    enqueued_.make_room({0});
  }
  bool add(std::uint64_t stream_number = 1) {
    const bool is_free = posts.add(nullptr, stream_number, plan_, enqueued_) != nullptr;
    enqueued_.add_opened({0});
    return is_free;
  }
  void await_raise(std::uint64_t epochs) const {
    while (streams.raised != epochs) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  NoStall stall_;
  ExposurePlan plan_;
  EnqueuedEpochs enqueued_{1};

 public:
  Marked streams;
  FreePosts posts;
};

}  // namespace

TEST_CASE("of free posts whose points have passed the last one alone is raised", "[free]") {
  for (const std::uint64_t count : {1, 2, 3, 5, 8, 9, 31, 100})
    for (std::uint64_t passed = 1; passed <= count; ++passed) {
      Posting one(true);
      for (std::uint64_t i = 0; i < count; ++i) REQUIRE(one.add());
      one.streams.passed = passed;
      one.await_raise(passed);
      one.posts.stop();
      CHECK(one.posts.raised() == 1);
    }
}

TEST_CASE("no more posts are free than a stream has room for", "[free]") {
  Posting one(true);
  for (int i = 0; i < 1024; ++i) REQUIRE(one.add());
  CHECK(!one.add());
  CHECK(one.add(2));  // another stream's
  one.streams.passed = 1024;
  one.await_raise(1024);
  CHECK(one.add());
}

TEST_CASE("a stream with the handle of an earlier one does not wait for it", "[free]") {
  Posting one(true);
  one.streams.held = 1;
  REQUIRE(one.add(1));
  REQUIRE(one.add(2));
  one.streams.passed = 2;
  one.await_raise(2);
}

TEST_CASE("a window whose posts have to be raised has prompt ones, and tries again", "[free]") {
  Posting one(false);
  std::uint64_t posts = 0, free_posts = 0;
  const auto post = [&] {
    ++posts;
    if (!one.add()) return false;
    one.streams.passed = ++free_posts;
    one.await_raise(posts);
    return true;
  };
  int raised = 0;
  for (; raised < 100 && post(); ++raised)
    ;
  CHECK(raised == 8);
  int prompt = 1;
  for (; prompt < 2000 && !post(); ++prompt)
    ;
  CHECK(prompt == 1023);
  CHECK(post());
  CHECK(!post());
  CHECK(one.posts.raised() == 10);
}

TEST_CASE("a window whose posts are seldom raised goes on to have free ones", "[free]") {
  Posting one(false);
  std::uint64_t posts = 0;
  for (int burst = 0; burst < 30; ++burst) {
    for (int i = 0; i < 150; ++i, ++posts) REQUIRE(one.add());
    one.streams.passed = posts;
    one.await_raise(posts);
  }
  CHECK(one.posts.raised() >= 30);
}
