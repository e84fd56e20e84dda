// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/channel.h"
#include "support/channel_handles.h"
#include "support/random.h"

/// Tasks in all settings: of tests/mpi/channel.cpp.
namespace {

/// What task `i` of a lane is like, as both sides compute it.
struct Shape {
  std::uint64_t seed;
  int most_words;
  TEST_FN std::uint64_t random(std::uint32_t lane, std::uint64_t i, std::uint64_t what) const {
    return test::mix(seed ^ test::mix((std::uint64_t{lane} << 40) + i * 16 + what));
  }
  TEST_FN unsigned words(std::uint32_t lane, std::uint64_t i) const {
    return static_cast<unsigned>(random(lane, i, 6) % static_cast<unsigned>(most_words + 1));
  }
  TEST_FN std::uint64_t word(std::uint32_t lane, std::uint64_t i, unsigned w) const { return random(lane, i, w); }
  TEST_FN unsigned kind(std::uint32_t lane, std::uint64_t i) const {
    return static_cast<unsigned>(random(lane, i, 7) % 3);
  }
  TEST_FN bool replies(std::uint32_t lane, std::uint64_t i) const { return random(lane, i, 8) % 3 == 0; }
  TEST_FN bool is_event(std::uint32_t lane, std::uint64_t i) const { return random(lane, i, 9) % 4 == 0; }
  TEST_FN std::uint64_t reply(std::uint32_t lane, std::uint64_t i) const { return random(lane, i, 10); }
  TEST_FN std::uint64_t payload(std::uint32_t lane, std::uint64_t i, std::uint32_t at) const {
    return random(lane, i, 11) + at;
  }
};

constexpr std::uint32_t payload_words = 64;
constexpr std::uint32_t most_open = 8;  ///< replies that a block leaves for later

/// A block posts its tasks. In front of each that is no event it fills its part of a buffer of the host, of which there
/// is one for each place; and now and then it asks for the replies that are open, the last first.
struct Poster {
  MPIX_Dev_channel channel;
  Shape shape;
  std::uint64_t tasks;
  std::uint64_t* buffers;  ///< by lane and task modulo `places`
  std::uint32_t places;
  std::uint64_t* faults;  ///< by lane: line, task

  MPIX_DEV_METHOD void fault(const MPIX_Dev_team& team, int line, std::uint64_t task, std::uint64_t what = 0) const {
    std::uint64_t* const mine = faults + team.block * 4;
    if (team.thread != 0 || mine[0] != 0) return;
    mine[0] = static_cast<std::uint64_t>(line);
    mine[1] = task;
    mine[2] = what;
  }
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const unsigned lane = team.block;
    std::uint64_t tickets[most_open] = {}, asked[most_open] = {};
    std::uint32_t open = 0;
    const std::uint32_t most = channel.depth < most_open ? channel.depth : most_open;
    for (std::uint64_t i = 0; i < tasks; ++i) {
      const bool is_event = shape.is_event(lane, i), replies = shape.replies(lane, i);
      if (!is_event) {
        std::uint64_t* const to = buffers + (std::uint64_t{lane} * places + i % places) * payload_words;
        for (std::uint32_t at = team.thread; at < payload_words; at += team.threads)
          to[at] = shape.payload(lane, i, at);
      }
      if (replies && open == most) {
        drain(team, lane, tickets, asked, open);
        open = 0;
      }
      std::uint64_t words[5];
      for (unsigned w = 0; w < 5; ++w) words[w] = shape.word(lane, i, w);
      std::uint64_t ticket = 0;
      int result = 0;
      if (is_event) {
        MPIX_Dev_sync(team);
        const mpix::dev::BlockBox box = mpix::dev::by_first_thread(team, [&] {
          mpix::dev::BlockBox mine{0, 0};
          mine.result = MPIX_Dev_post_event(channel, lane, shape.kind(lane, i), words, shape.words(lane, i),
                                            replies ? &mine.value : nullptr);
          return mine;
        });
        result = box.result;
        ticket = box.value;
      } else {
        result = MPIX_Dev_block_post(team, channel, lane, shape.kind(lane, i), words, shape.words(lane, i),
                                     replies ? &ticket : nullptr);
      }
      if (result != MPIX_DEV_DONE) {
        fault(team, __LINE__, i, static_cast<std::uint64_t>(result));
        return;
      }
      if (!replies) continue;
      tickets[open] = ticket;
      asked[open++] = i;
    }
    drain(team, lane, tickets, asked, open);
  }
  MPIX_DEV_METHOD void drain(const MPIX_Dev_team& team, unsigned lane, const std::uint64_t* tickets,
                             const std::uint64_t* asked, std::uint32_t open) const {
    for (std::uint32_t o = open; o-- > 0;) {
      std::uint64_t value = 0;
      const int result = MPIX_Dev_block_reply_wait(team, channel, tickets[o], &value);
      if (result != MPIX_DEV_DONE) return fault(team, __LINE__, asked[o], static_cast<std::uint64_t>(result));
      if (value != shape.reply(lane, asked[o])) fault(team, __LINE__, asked[o], value);
    }
  }
};

/// The host's side: checks each task, and replies at once or later, in another order.
struct Service {
  Shape shape;
  MPIX_Channel channel;
  const std::uint64_t* buffers;
  std::uint32_t places, depth;
  bool is_queue;
  std::vector<std::uint64_t> next;  ///< by lane
  std::mutex mutex;                 ///< later
  std::vector<std::pair<MPIX_Task, std::uint64_t>> later;
  std::uint64_t tasks = 0, last_number = 0;

  static int take(MPIX_Channel channel, const MPIX_Task* task, void* arg) {
    static_cast<Service*>(arg)->take(channel, *task);
    return MPI_SUCCESS;
  }
  void take(MPIX_Channel from, const MPIX_Task& task) {
    ++tasks;
    EXPECT(from == channel);
    EXPECT(task.lane < next.size());
    const std::uint64_t i = next[task.lane]++;
    if (is_queue) EXPECT(task.number == ++last_number);
    if (!is_queue) EXPECT(task.number == i + 1);
    EXPECT(task.kind == shape.kind(task.lane, i));
    EXPECT(task.words == shape.words(task.lane, i));
    for (unsigned w = 0; w < 5; ++w) EXPECT(task.word[w] == (w < task.words ? shape.word(task.lane, i, w) : 0));
    EXPECT((task.ticket != 0) == shape.replies(task.lane, i));
    if (!shape.is_event(task.lane, i)) check_payload(task.lane, i);
    if (task.ticket == 0) return;
    const std::uint64_t value = shape.reply(task.lane, i);
    if (shape.random(task.lane, i, 12) % 2 == 0) {
      CHECK_MPI(MPIX_Channel_reply(channel, &task, value));
      return;
    }
    const std::lock_guard<std::mutex> hold(mutex);
    later.emplace_back(task, value);
  }
  /// What a block wrote before it posted. It may have begun to write it again, for the task that has its place next,
  /// and only then: that cannot be before this one has been taken.
  void check_payload(std::uint32_t lane, std::uint64_t i) const {
    const std::uint64_t* const from = buffers + (std::uint64_t{lane} * places + i % places) * payload_words;
    for (std::uint32_t at = 0; at < payload_words; ++at) EXPECT(from[at] == shape.payload(lane, i, at));
  }
  void reply_to_all() {
    const std::lock_guard<std::mutex> hold(mutex);
    while (!later.empty()) {
      const std::pair<MPIX_Task, std::uint64_t> one = later.back();
      later.pop_back();
      CHECK_MPI(MPIX_Channel_reply(channel, &one.first, one.second));
    }
  }
};

std::uint64_t run_tasks(int lanes, std::uint64_t each, int most_words, Keys keys, const std::string& what,
                        int threads = 32) {
  const int before = failures;
  Channel channel(lanes, 0, keys);
  bool is_queue = false, serves = false;
  for (const auto& key : keys) {
    if (std::string(key.first) == "mpix_tasks") is_queue = key.second == "queue";
    if (std::string(key.first) == "mpix_service") serves = key.second == "caller";
  }
  Service service{};
  service.shape = Shape{test::mix(each) + static_cast<std::uint64_t>(lanes), most_words};
  service.channel = channel;
  service.depth = channel.device().depth;
  service.is_queue = is_queue;
  service.places = channel.device().depth + 1;
  service.next.resize(static_cast<std::size_t>(lanes));
  const auto blocks = static_cast<std::size_t>(lanes);
  auto* const buffers =
      static_cast<std::uint64_t*>(support::allocate_pinned(blocks * service.places * payload_words * 8));
  auto* const faults = static_cast<std::uint64_t*>(support::allocate_on_device(blocks * 32));
  service.buffers = buffers;
  for (unsigned kind = 0; kind < 3; ++kind) channel.handle(kind, Service::take, &service);
  const Poster poster{channel.device(), service.shape, each, buffers, service.places, faults};
  CHECK_MPI(MPIX_Channel_arm(channel));
  support::launch_blocks(poster, lanes, threads);
  std::atomic<bool> over{false};
  std::thread waits([&] {
    support::synchronize();
    over = true;
  });
  while (!over) {
    int moved = 0;
    if (serves) CHECK_MPI(MPIX_Channel_serve(channel, &moved));
    service.reply_to_all();
    if (!moved) std::this_thread::yield();
  }
  waits.join();
  CHECK_MPI(MPIX_Channel_disarm(channel));
  std::vector<std::uint64_t> found(blocks * 4);
  support::to_host(found.data(), faults, found.size() * 8);
  for (std::size_t b = 0; b < blocks; ++b)
    if (found[b * 4] != 0) {
      std::printf("lane %zu: line %llu, task %llu: %llu\n", b, static_cast<unsigned long long>(found[b * 4]),
                  static_cast<unsigned long long>(found[b * 4 + 1]), static_cast<unsigned long long>(found[b * 4 + 2]));
      ++failures;
    }
  for (const std::uint64_t next : service.next) EXPECT(next == each);
  EXPECT(channel.stats().tasks == each * blocks);
  support::release_on_device(faults);
  support::release_pinned(buffers);
  if (failures != before) std::printf("in %s\n", what.c_str());
  return each * blocks;
}

void tasks(std::uint64_t wanted) {
  std::uint64_t all = 0;
  int turn = 0;
  for (const char* const kind : {"lanes", "queue"})
    for (const char* const depth : {"1", "2", "8", "512"})
      for (const int lanes : {1, 27, 132})
        for (const char* const service : {"caller", "own", "thread"}) {
          const int words = turn % 6;
          const char* const layout = turn % 2 ? "dense" : "padded";
          const char* const fence = turn % 5 == 0 ? "thread" : "block";
          ++turn;
          // On hosts each reply wakes all that sleep: many of them are dear.
          const std::uint64_t share = lanes > 100 && !support::ranks_are_blocks ? wanted / 20 : wanted;
          const std::uint64_t each = share / 72 / static_cast<std::uint64_t>(lanes) + 1;
          all += run_tasks(lanes, each, words,
                           {{"mpix_tasks", kind},
                            {"mpix_depth", depth},
                            {"mpix_service", service},
                            {"mpix_layout", layout},
                            {"mpix_fence", fence}},
                           std::string(kind) + ", depth " + depth + ", lanes " + std::to_string(lanes) + ", " +
                               service + ", up to " + std::to_string(words) + " words, " + layout + ", " + fence);
        }
  std::printf("%llu tasks\n", static_cast<unsigned long long>(all));
}

}  // namespace
