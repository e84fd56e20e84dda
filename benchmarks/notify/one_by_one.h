// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bare.h"
#include "benchmarks/clocks.h"
#include "channel.h"
#include "table.h"

/// Round trips of one block, each by itself: how much longer the longest ones are, and how long each way takes.
namespace notify {

/// When a round trip began and ended: by the kernels' clock, or by one that counts faster, in whatever unit.
struct Trip {
  std::uint64_t begin, end;
};

MPIX_DEV_FN std::uint64_t fast_clock() {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(clock64());
#else
  return MPIX_Dev_clock();
#endif
}

enum class Asks { by_task, by_full_task, by_flag };

/// One thread. The first trip is from before to behind all of them, by the kernels' clock.
struct OneByOne {
  MPIX_Dev_channel channel;
  std::uint64_t count;
  Asks asks;
  bool by_fast_clock;
  Trip* trips;
  int* failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    const std::uint64_t word[MPIX_TASK_WORDS] = {1, 2, 3, 4, 5};
    trips[0].begin = MPIX_Dev_clock();
    for (std::uint64_t i = 1; i <= count; ++i) {
      std::uint64_t ticket = 0, value = 0;
      int result = 0;
      const std::uint64_t begin = now();
      if (asks == Asks::by_flag) {
        result = MPIX_Dev_flag_set(channel, 0, i);
        if (result == MPIX_DEV_DONE) result = MPIX_Dev_flag_wait(channel, 0, i);
      } else {
        result = asks == Asks::by_task ? MPIX_Dev_post_event(channel, 0, question, word, 0, &ticket)
                                       : MPIX_Dev_post(channel, 0, question, word, MPIX_TASK_WORDS, &ticket);
        if (result == MPIX_DEV_DONE) result = MPIX_Dev_reply_wait(channel, ticket, &value);
      }
      trips[i] = Trip{begin, now()};
      if (result != MPIX_DEV_DONE) {
        *failed = result;
        return;
      }
    }
    trips[0].end = MPIX_Dev_clock();
  }
  MPIX_DEV_METHOD std::uint64_t now() const { return by_fast_clock ? fast_clock() : MPIX_Dev_clock(); }
};

/// By hand; flags with the order that they give.
struct BareOneByOne {
  bare::Words words;
  std::uint64_t count;
  bool by_flag;
  Trip* trips;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    std::uint64_t* const up = reinterpret_cast<std::uint64_t*>(words.ring);
    trips[0].begin = MPIX_Dev_clock();
    for (std::uint64_t i = 1; i <= count; ++i) {
      const std::uint64_t begin = fast_clock();
      if (by_flag) {
        mpix::store_release(up, i);
        while (mpix::load_acquire(words.back) < i) bare::wait_a_little();
      } else {
        mpix::write_line(words.ring + i % bare::depth, i, static_cast<std::uint32_t>(i));
        while (bare::volatile_word(words.back) < i) bare::wait_a_little();
      }
      trips[i] = Trip{begin, fast_clock()};
    }
    trips[0].end = MPIX_Dev_clock();
  }
};

class Trips {
 public:
  explicit Trips(std::uint64_t count)
      : count_(count), device_(static_cast<Trip*>(support::allocate_on_device((count + 1) * sizeof(Trip)))) {}
  ~Trips() { support::release_on_device(device_); }
  Trips(const Trips&) = delete;
  Trips& operator=(const Trips&) = delete;

  Trip* device() const { return device_; }
  std::vector<Trip> read() const {
    std::vector<Trip> all(count_ + 1);
    support::to_host(all.data(), device_, all.size() * sizeof all[0]);
    return all;
  }
  /// Microseconds, without the first ones.
  std::vector<double> durations() const {
    const std::vector<Trip> all = read();
    const double unit =
        static_cast<double>(all[0].end - all[0].begin) / static_cast<double>(all[count_].end - all[1].begin) * 1e-3;
    std::vector<double> durations;
    for (std::size_t i = 1 + count_ / 10; i < all.size(); ++i)
      durations.push_back(static_cast<double>(all[i].end - all[i].begin) * unit);
    return durations;
  }

 private:
  const std::uint64_t count_;
  Trip* const device_;
};

/// By the CPU's clock. `arg`: when it was there, by task.
inline int answer_and_note(MPIX_Channel channel, const MPIX_Task* task, void* arg) {
  static_cast<std::vector<std::uint64_t>*>(arg)->push_back(benchmark::nanoseconds());
  return MPIX_Channel_reply(channel, task, task->number);
}

inline void spread_rows(const std::string& name, const std::vector<double>& own, const std::vector<double>& by_hand) {
  row(name + ", one by one: median", median(own), "us", median(by_hand));
  row(name + ", one by one: 99 of 100 take no longer", percentile(own, 99), "us", percentile(by_hand, 99));
}

inline void spreads() {
  const std::uint64_t count = support::ranks_are_blocks ? 10000 : 2000;
  Trips trips(count);
  bare::Words words{};
  words.ring = static_cast<mpix::Line*>(support::allocate_pinned(bare::depth * sizeof(mpix::Line)));
  words.back = static_cast<std::uint64_t*>(support::allocate_pinned(128));
  const auto by_hand = [&](bool by_flag) {
    std::memset(static_cast<void*>(words.ring), 0, bare::depth * sizeof(mpix::Line));
    *words.back = 0;
    timed(BareOneByOne{words, count, by_flag, trips.device()}, 1, [&] {
      std::uint64_t next = 1;
      if (!by_flag) return bare::serve(words, 1, count, &next);
      for (auto* const up = reinterpret_cast<std::uint64_t*>(words.ring); next <= count; ++next) {
        while (mpix::load_acquire(up) < next) bare::wait_a_little();
        mpix::store_release(words.back, next);
      }
    });
    return trips.durations();
  };
  const auto by_task = [&](Asks asks) {
    Channel channel(1, 0, {{"mpix_service", "own"}});
    CHECK_MPI(MPIX_Channel_set_handler(channel, question, answer, nullptr));
    CHECK_MPI(MPIX_Channel_arm(channel));
    timed(OneByOne{channel.device(), count, asks, true, trips.device(), failed_word}, 1);
    CHECK_MPI(MPIX_Channel_disarm(channel));
    check_failed();
    return trips.durations();
  };
  const auto by_flag = [&] {
    Channel channel(0, 1, {});
    timed(OneByOne{channel.device(), count, Asks::by_flag, true, trips.device(), failed_word}, 1, [&] {
      for (unsigned long long n = 1; n <= count; ++n) {
        CHECK_MPI(MPIX_Channel_flag_wait(channel, 0, n));
        CHECK_MPI(MPIX_Channel_flag_set(channel, 0, n));
      }
    });
    check_failed();
    return trips.durations();
  };
  const std::vector<std::function<std::vector<double>()>> ways = {
      [&] { return by_hand(false); }, [&] { return by_task(Asks::by_task); },
      [&] { return by_task(Asks::by_full_task); }, [&] { return by_hand(true); }, by_flag};
  std::vector<std::vector<double>> all(ways.size());
  for (int run = 0; run <= runs; ++run)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::vector<double> some = ways[i]();
      if (run > 0) all[i].insert(all[i].end(), some.begin(), some.end());
    }
  spread_rows("a task and its reply", all[1], all[0]);
  spread_rows("a task of 5 words with a fence, and its reply", all[2], all[0]);
  spread_rows("flags", all[4], all[3]);
  support::release_pinned(words.back);
  support::release_pinned(words.ring);
}

/// From in front of the post to the handler, and from there, where it reads its clock and replies, to behind the wait.
inline void one_way() {
  const std::uint64_t count = support::ranks_are_blocks ? 4000 : 2000;
  Trips trips(count);
  std::vector<std::uint64_t> came;
  came.reserve(count);
  benchmark::Clocks clocks;
  {
    Channel channel(1, 0, {{"mpix_service", "own"}});
    CHECK_MPI(MPIX_Channel_set_handler(channel, question, answer_and_note, &came));
    CHECK_MPI(MPIX_Channel_arm(channel));
    timed(OneByOne{channel.device(), count, Asks::by_task, false, trips.device(), failed_word}, 1);
    CHECK_MPI(MPIX_Channel_disarm(channel));
    check_failed();
  }
  clocks.end();
  const std::vector<Trip> all = trips.read();
  std::vector<double> up, down, both;
  for (std::size_t i = count / 10; i < count; ++i) {
    const double begin = clocks.of_kernel(all[i + 1].begin), end = clocks.of_kernel(all[i + 1].end);
    up.push_back((clocks.of_cpu(came[i]) - begin) * 1e-3);
    down.push_back((end - clocks.of_cpu(came[i])) * 1e-3);
    both.push_back((end - begin) * 1e-3);
  }
  row("one way, a task to its handler", median(up), "us");
  row("one way, the handler and its reply", median(down), "us");
  row("the round trip of these", median(both), "us");
  row("error of the clocks", clocks.error() * 1e-3, "us");
}

}  // namespace notify
