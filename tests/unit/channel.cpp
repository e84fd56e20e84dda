// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Channels: numbers that run over, many posters, late replies, what breaks them.
#include "notify/channel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channel_kit.h"
#include "notify/request_words.h"
#include "support/awake.h"
#include "support/catch.h"
#include "support/random.h"

using namespace mpix;
using dev::Post;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t word_for(unsigned lane, std::uint64_t i, unsigned w) {
  return test::mix((std::uint64_t{lane} << 48) + (i << 8) + w);
}
unsigned words_for(unsigned lane, std::uint64_t i) { return static_cast<unsigned>(word_for(lane, i, 6) % 6); }

/// Replies by a thread of its own, in any order, after a while.
class LateReplies {
 public:
  explicit LateReplies(Channel& channel, unsigned seed)
      : channel_(channel), random_(seed), thread_([this] { work(); }) {}
  ~LateReplies() {
    over_ = true;
    thread_.join();
  }
  LateReplies(const LateReplies&) = delete;
  LateReplies& operator=(const LateReplies&) = delete;
  void add(const MPIX_Task& task, std::uint64_t value) {
    const std::lock_guard<std::mutex> hold(mutex_);
    left_.emplace_back(task, value);
  }

 private:
  void work() {
    while (!over_) {
      std::pair<MPIX_Task, std::uint64_t> one;
      {
        const std::lock_guard<std::mutex> hold(mutex_);
        if (left_.empty()) {
          std::this_thread::yield();
          continue;
        }
        const auto at = left_.begin() + static_cast<std::ptrdiff_t>(random_() % left_.size());
        one = *at;
        left_.erase(at);
      }
      if (random_() % 8 == 0) std::this_thread::sleep_for(microseconds(random_() % 200));
      channel_.reply(one.first, one.second);
    }
  }
  Channel& channel_;
  std::minstd_rand random_;
  std::mutex mutex_;
  std::deque<std::pair<MPIX_Task, std::uint64_t>> left_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

struct Load {
  unsigned lanes;
  std::uint64_t each, first_number;
  std::uint32_t depth;
  bool is_queue;
  TaskService service = TaskService::own;
  bool is_dense = false;
  bool delays = false;
};

/// All lanes post; every word, number and reply is checked. Returns how many things were wrong.
std::uint64_t run(const Load& load) {
  ChannelOptions options = channel_options(load.lanes, load.depth, load.is_queue, load.service);
  options.first_number = load.first_number;
  options.is_dense = load.is_dense;
  TestChannel channel(options);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::uint64_t> next(load.lanes, 0);
  std::uint64_t number = load.first_number - 1;
  {
    LateReplies late(*channel.operator->(), 7);
    channel.handle(4, [&](const MPIX_Task& task) {
      const std::uint64_t i = next[task.lane]++;
      if (task.number != (load.is_queue ? ++number : load.first_number + i)) ++wrong;
      if (task.words != words_for(task.lane, i)) ++wrong;
      for (unsigned w = 0; w < 5; ++w)
        if (task.word[w] != (w < task.words ? word_for(task.lane, i, w) : 0)) ++wrong;
      if (task.ticket == 0) return 0;
      if (i % 2)
        late.add(task, word_for(task.lane, i, 7));
      else
        channel->reply(task, word_for(task.lane, i, 7));
      return 0;
    });
    channel->arm();
    std::atomic<bool> over{false};
    std::thread serves([&] {
      while (!over && load.service == TaskService::caller)
        if (!channel->serve()) std::this_thread::yield();
    });
    channel.run(load.lanes, [&](unsigned lane) {
      std::minstd_rand random(lane + 1);
      std::vector<std::pair<std::uint64_t, std::uint64_t>> open;  // ticket, task
      const auto close = [&](std::size_t at) {
        std::uint64_t value = 0;
        if (kernel::reply_wait(channel.device(), open[at].first, &value) != Post::ok) ++wrong;
        if (value != word_for(lane, open[at].second, 7)) ++wrong;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      };
      for (std::uint64_t i = 0; i < load.each; ++i) {
        std::uint64_t words[5], ticket = 0;
        for (unsigned w = 0; w < 5; ++w) words[w] = word_for(lane, i, w);
        const bool wants = word_for(lane, i, 8) % 3 == 0;
        if (load.delays && random() % 16 == 0) std::this_thread::sleep_for(microseconds(random() % 300));
        Post result = Post::full;
        while ((result = kernel::post(channel.device(), lane, 4, words, words_for(lane, i),
                                      wants ? &ticket : nullptr)) == Post::full)
          close(0);
        if (result != Post::ok) {
          ++wrong;
          return;
        }
        if (wants) open.emplace_back(ticket, i);
        if (!open.empty() && random() % 4 == 0) close(random() % open.size());
      }
      while (!open.empty()) close(open.size() - 1);
    });
    over = true;
    serves.join();
    channel->disarm();
  }
  for (const std::uint64_t count : next)
    if (count != load.each) ++wrong;
  if (channel->counts().tasks != load.each * load.lanes) ++wrong;
  return wrong;
}

std::uint64_t scaled(std::uint64_t count) { return count / static_cast<std::uint64_t>(test::slowdown()) + 1; }

}  // namespace

TEST_CASE("numbers of tasks run over 31, 32 and 63 bits", "[channel]") {
  const std::uint64_t first = GENERATE(std::uint64_t{1}, (std::uint64_t{1} << 32) - 3, (std::uint64_t{1} << 31) - 2,
                                       std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 5);
  const bool is_queue = GENERATE(false, true);
  const std::uint32_t depth = GENERATE(1u, 4u, 64u);
  CAPTURE(first, is_queue, depth);
  CHECK(run(Load{3, scaled(400), first, depth, is_queue}) == 0);
}

TEST_CASE("words are cleared once in 2^30 tasks", "[channel]") {
  const bool is_queue = GENERATE(false, true);
  const std::uint32_t depth = GENERATE(1u, 2u, 8u);
  const std::uint64_t lap = std::uint64_t{1} << 30, first = lap - 20;
  ChannelOptions options = channel_options(1, depth, is_queue, TaskService::caller);
  options.first_number = first;
  TestChannel channel(options);
  const std::uint64_t words[5] = {1, 2, 3, 4, 5};
  for (std::uint64_t number = first; number < lap + 40; ++number) {
    const bool has_words = number % 3 == 0;
    REQUIRE(kernel::post_event(channel.device(), 0, 0, words, has_words ? 5 : 0) == Post::ok);
    MPIX_Task task{};
    REQUIRE(channel->poll(&task));
    REQUIRE(task.number == number);
    REQUIRE(task.words == (has_words ? 5u : 0u));
    for (unsigned w = 0; w < 5; ++w) REQUIRE(task.word[w] == (has_words ? words[w] : 0));
    // Whatever a place holds, it is of this lap: its next alias is two laps on.
    const Line* const lines = dev::words_of(channel.device(), 0, number);
    std::uint64_t value = 0;
    if (number >= lap && number < lap + depth)
      for (unsigned w = 0; w < 5; ++w) CHECK_FALSE(line_arrived(lines + w, dev::task_tag(number), &value));
  }
  CHECK(run(Load{2, scaled(300), first, depth, is_queue}) == 0);
}

TEST_CASE("a program that polls may disarm with tasks that it has not taken", "[channel]") {
  TestChannel channel(channel_options(1, 8, false, TaskService::caller));
  channel->arm();
  REQUIRE(kernel::post_event(channel.device(), 0, 7, nullptr, 0) == Post::ok);
  channel->disarm();
  CHECK_FALSE(channel->is_broken());
  MPIX_Task task{};
  REQUIRE(channel->poll(&task));
  CHECK(task.kind == 7);
}

TEST_CASE("tasks and replies, with delays, many posters", "[channel]") {
  const TaskService service = GENERATE(TaskService::own, TaskService::library, TaskService::caller);
  const bool is_queue = GENERATE(false, true);
  const std::uint32_t depth = GENERATE(1u, 8u);
  CAPTURE(static_cast<int>(service), is_queue, depth);
  CHECK(run(Load{27, scaled(150), 1, depth, is_queue, service, depth == 1, true}) == 0);
}

TEST_CASE("channels by the thousand, one after another", "[channel]") {
  const std::uint64_t times = scaled(1500);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < times; ++i)
    wrong += run(Load{1 + static_cast<unsigned>(i % 3), 6, 1, 1u << i % 3, i % 2 == 0,
                      i % 5 == 0 ? TaskService::library : TaskService::own});
  CHECK(wrong == 0);
}

// A kernel that goes on with a channel that has been freed finds out, whatever lies there now.
TEST_CASE("channels of many shapes share what is kept", "[channel]") {
  const auto device = make_host_device(channel_settings(), 2);
  std::set<const void*> hosts, devices;
  std::vector<MPIX_Dev_channel> freed;
  const std::uint64_t words[1] = {1};
  for (std::uint32_t lanes = 1; lanes <= 300; ++lanes) {
    ChannelOptions options = channel_options(lanes, 1u << lanes % 5, lanes % 2 == 0, TaskService::caller);
    options.flags = lanes % 7;
    ChannelMemory memory(options, *device);
    const MPIX_Dev_channel& now = memory.param();
    hosts.insert(now.host);
    devices.insert(now.state);
    for (std::uint64_t lane = 0; lane < lanes; ++lane)  // as if each had posted
      now.lane[lane].posted = now.lane[lane].wanted = lane;
    for (const MPIX_Dev_channel& one : freed)
      for (unsigned lane : {0u, one.lanes / 2, one.lanes - 1})
        if (kernel::post_event(one, lane, 0, words, 1) != Post::released)
          FAIL("a post to a freed channel of " << one.lanes);
    freed.push_back(now);
  }
  ChannelMemory::forget_all();
  CHECK(hosts.size() < 60);
  CHECK(devices.size() < 60);
}

TEST_CASE("kernels wait for words in sectors of their own", "[channel]") {
  const auto device = make_host_device(channel_settings(), 2);
  std::set<std::uintptr_t> sectors;
  std::size_t words = 0;
  const auto add = [&](const void* word) {
    sectors.insert(reinterpret_cast<std::uintptr_t>(word) / dev::sector);
    ++words;
  };
  ChannelOptions options;
  REQUIRE(options.is_dense);
  options.lanes = options.flags = 9;
  options.depth = 1;
  {
    const ChannelMemory memory(options, *device);
    const MPIX_Dev_channel& c = memory.param();
    for (std::uint64_t i = 0; i < 9; ++i) {
      add(dev::down_of(c, i));
      add(dev::taken_of(c, i));
      add(dev::reply_of(c, i, 1));
    }
  }
  ChannelMemory::forget_all();
  RequestWords requests(*device, nullptr);
  requests.grow();
  const MPIX_Drequest request = requests.give_out(7, 3, false);
  for (std::size_t place = 0; place < 7; ++place) add(requests.down(place));
  for (std::uint32_t p = 0; p < 3; ++p) add(dev::partition_of(request, p));
  CHECK(sectors.size() == words);
  requests.take_back(7);
}

TEST_CASE("garbage in a place breaks the channel", "[channel]") {
  const bool is_queue = GENERATE(false, true);
  TestChannel channel(channel_options(3, 4, is_queue));
  std::atomic<int> handled{0};
  channel.handle(0, [&](const MPIX_Task&) {
    ++handled;
    return 0;
  });
  channel->arm();
  const std::uint32_t ring = is_queue ? 0 : 2;
  const dev::TaskHead no_such_lane{200, 0, 0, 0}, too_many{2, 0, 9, 0};
  const dev::TaskHead& head = GENERATE(0, 1) ? no_such_lane : too_many;
  write_line(dev::head_of(channel.device(), ring, 1), head.packed(), dev::task_tag(1));
  channel.device().hooks->post(channel.device().host);
  const auto begin = Clock::now();
  while (!channel->is_broken() && seconds_since(begin) < 30) std::this_thread::yield();
  REQUIRE(channel->is_broken());
  CHECK(channel->cause().find(is_queue ? "task 1 of the queue is garbage" : "task 1 of lane 2 is garbage") == 0);
  CHECK(text_of_error([&] { channel->disarm(); }).find("is garbage") != std::string::npos);
  CHECK(kernel::flag_wait(channel.device(), 0, 1) == Post::argument);
  CHECK(handled == 0);
}

TEST_CASE("a post that ends in the middle breaks the channel when it is disarmed", "[channel]") {
  const bool is_queue = GENERATE(false, true);
  const std::uint32_t lanes = is_queue ? 3u : GENERATE(1u, 3u);
  const TaskService service = GENERATE(TaskService::own, TaskService::caller);
  CAPTURE(is_queue, lanes);
  TestChannel channel(channel_options(lanes, 4, is_queue, service));
  channel.handle(0, [](const MPIX_Task&) { return 0; });
  channel->arm();
  CHECK(kernel::post(channel.device(), lanes - 1, 0, nullptr, 0) == Post::ok);
  // One lane is its own queue.
  if (is_queue || lanes == 1)
    (void)fetch_add_on_device(&channel.device().state->tickets, 1);
  else
    (void)fetch_add_on_device(&channel.device().lane[lanes - 1].posted, 1);
  const auto begin = Clock::now();
  const std::string text = text_of_error([&] { channel->disarm(); });
  CHECK(seconds_since(begin) < 60);
  const std::string ring = is_queue ? "the queue" : "lane " + std::to_string(lanes - 1);
  CHECK(text.find("task 2 of 2 of " + ring + " was begun, and has not come: a kernel ended in the middle of a post") !=
        std::string::npos);
  CHECK(!channel->is_armed());
}

TEST_CASE("what a handler throws breaks the channel", "[channel]") {
  const TaskService service = GENERATE(TaskService::own, TaskService::library, TaskService::caller);
  const bool is_exception = GENERATE(true, false);
  TestChannel channel(channel_options(2, 4, false, service));
  channel.handle(1, [&](const MPIX_Task&) -> int {
    if (is_exception) throw std::runtime_error("no luck");
    throw 5;
  });
  channel->arm();
  std::uint64_t ticket = 0;
  REQUIRE(kernel::post(channel.device(), 1, 1, nullptr, 0, &ticket) == Post::ok);
  if (service == TaskService::caller) (void)text_of_error([&] { channel->serve(); });
  CHECK(kernel::reply_wait(channel.device(), ticket, nullptr) == Post::released);
  const std::string text = text_of_error([&] { channel->disarm(); });
  CHECK(text.find(std::string("the handler of task 1 of lane 1, of kind 1 has thrown") +
                  (is_exception ? ": no luck" : " what is no std::exception")) != std::string::npos);
  CHECK(!channel->is_in_handler());
}

TEST_CASE("a broken channel lets go of waits at once, whatever they wait for", "[channel]") {
  Settings settings = channel_settings();
  settings.spin_seconds = GENERATE(0.0, 50e-6);
  ChannelOptions options = channel_options(2, 1, false, TaskService::caller);
  options.flags = 1;
  TestChannel channel(options, settings);
  std::atomic<int> released{0};
  std::vector<std::thread> kernels;
  const auto expect = [&](Post result) { released += result == Post::released; };
  kernels.emplace_back([&] {
    std::uint64_t ticket = 0;
    (void)kernel::post(channel.device(), 0, 0, nullptr, 0, &ticket);
    expect(kernel::reply_wait(channel.device(), ticket, nullptr));
  });
  kernels.emplace_back([&] {
    (void)kernel::post(channel.device(), 1, 0, nullptr, 0);
    expect(kernel::post(channel.device(), 1, 0, nullptr, 0));
  });
  kernels.emplace_back([&] { expect(kernel::flag_wait(channel.device(), 0, 3)); });
  kernels.emplace_back([&] { released += !text_of_error([&] { channel->wait_for_flag(0, 3); }).empty(); });
  std::this_thread::sleep_for(milliseconds(50));
  const test::AwakeClock clock;
  channel->break_for("a test");
  for (std::thread& kernel : kernels) kernel.join();
  CHECK(clock.seconds() < 2 * test::slowdown());  // nothing of the time-out's, which is longer
  CHECK(released == 4);
}

TEST_CASE("the lateness of a service is that of its looks, and not of its tasks", "[channel]") {
  constexpr int between_tasks_ms = 700;
  bool is_shorter = false;
  for (int attempt = 0; attempt < 5 && !is_shorter; ++attempt) {  // a busy machine may keep a thread from a look
    TestChannel channel(channel_options(1, 4, false));
    channel.handle(0, [](const MPIX_Task&) { return 0; });
    channel->arm();
    for (int i = 0; i < 2; ++i) {
      REQUIRE(kernel::post(channel.device(), 0, 0, nullptr, 0) == Post::ok);
      std::this_thread::sleep_for(milliseconds(between_tasks_ms));
    }
    channel->disarm();
    CHECK(channel->counts().tasks == 2);
    is_shorter = channel->counts().late_ns < between_tasks_ms * 1000000ull;
  }
  CHECK(is_shorter);
}
