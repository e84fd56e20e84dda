// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Channels, with blocks that are threads or, compiled as CUDA or HIP, those of a kernel:
//
//   mpiexec -n 1 channel tasks [TASKS]     queue and lanes, of every depth, number of posters and of words: none is
//                                          lost, doubled or torn, each lane's come in order, and replies reach it
//   mpiexec -n 1 channel flags [NUMBERS]   up and down, with data in front
//   mpiexec -n 1 channel slow              a service that takes its time: posters stall, and go on
//   mpiexec -n 1 channel calls             wrong calls, at the host and in kernels; broken channels; what they say
//   mpiexec -n 1 channel steady [TIMES]    created and freed: no more memory, threads or descriptors afterwards
//   mpiexec -n 1 channel leave             MPI_Finalize while blocks wait
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mpi/channel_tasks.h"
#include "mpi/channel_wrong.h"
#include "support/channel.h"
#include "support/channel_handles.h"
#include "support/random.h"

namespace {

// ---- Flags -------------------------------------------------------------------------------------------

/// A block and the host take turns: each sets its flag when it has filled a buffer, and checks the other's.
struct Turns {
  MPIX_Dev_channel channel;
  std::uint64_t numbers, step;
  std::uint64_t *up, *down;  ///< by flag: payload
  std::uint64_t* faults;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const unsigned f = team.block;
    std::uint64_t* const mine = up + f * payload_words;
    const std::uint64_t* const other = down + f * payload_words;
    for (std::uint64_t n = 1; n <= numbers; ++n) {
      for (std::uint32_t at = team.thread; at < payload_words; at += team.threads)
        mine[at] = test::mix(n * 97 + at + f);
      if (MPIX_Dev_block_flag_set(team, channel, f, n * step) != MPIX_DEV_DONE ||
          MPIX_Dev_block_flag_wait(team, channel, f, n * step) != MPIX_DEV_DONE) {
        if (team.thread == 0) faults[f] += 1000000;
        return;
      }
      for (std::uint32_t at = team.thread; at < payload_words; at += team.threads)
        if (mpix::load_once(other + at) != test::mix(n * 89 + at + f)) (void)mpix::fetch_add_on_device(faults + f, 1);
    }
  }
};

void flags(std::uint64_t wanted) {
  for (const int count : {1, 27, 132})
    for (const auto& [layout, place] : {std::pair("padded", "host"), {"dense", "host"}, {"dense", "device"}}) {
      Channel channel(
          0, count, {{"mpix_layout", layout}, {"mpix_words", place}, {"mpix_fence", count == 1 ? "thread" : "block"}});
      const auto all = static_cast<std::size_t>(count);
      auto* const up = static_cast<std::uint64_t*>(support::allocate_pinned(all * payload_words * 8));
      auto* const down = static_cast<std::uint64_t*>(support::allocate_pinned(all * payload_words * 8));
      auto* const faults = static_cast<std::uint64_t*>(support::allocate_on_device(all * 8));
      const std::uint64_t each = wanted / 9 / all + 1, step = 3;
      support::launch_blocks(Turns{channel.device(), each, step, up, down, faults}, count, 32);
      std::vector<std::uint64_t> at(all, 1);
      std::size_t left = all;
      // One waits for the flag asleep; else all are looked at in turn.
      while (left > 0) {
        bool moved = false;
        for (std::size_t f = 0; f < all; ++f) {
          const std::uint64_t n = at[f];
          if (n > each) continue;
          unsigned long long value = 0;
          if (count == 1) CHECK_MPI(MPIX_Channel_flag_wait(channel, static_cast<int>(f), n * step));
          CHECK_MPI(MPIX_Channel_flag_get(channel, static_cast<int>(f), &value));
          if (value < n * step) {
            EXPECT(value == (n - 1) * step);
            continue;
          }
          EXPECT(value == n * step);  // never ahead
          for (std::uint32_t i = 0; i < payload_words; ++i) {
            EXPECT(up[f * payload_words + i] == test::mix(n * 97 + i + f));
            down[f * payload_words + i] = test::mix(n * 89 + i + f);
          }
          CHECK_MPI(MPIX_Channel_flag_set(channel, static_cast<int>(f), n * step));
          if (++at[f] > each) --left;
          moved = true;
        }
        if (!moved) std::this_thread::yield();
      }
      support::synchronize();
      std::vector<std::uint64_t> found(all);
      support::to_host(found.data(), faults, all * 8);
      for (const std::uint64_t one : found) EXPECT(one == 0);
      std::printf("%d flags, %s, in memory of the %s: %llu numbers each\n", count, layout, place,
                  static_cast<unsigned long long>(each));
      support::release_on_device(faults);
      support::release_pinned(up);
      support::release_pinned(down);
    }
}

/// All blocks wait for the same flag, for different values of it, and say so when they have come.
struct SameFlag {
  MPIX_Dev_channel channel;
  std::uint64_t rounds;
  const std::uint64_t* payload;
  std::uint64_t* faults;
  static constexpr std::uint64_t values = 3;  ///< a round
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t value = values * round + 1 + team.block % values;
      if (MPIX_Dev_flag_wait(channel, 0, value) != MPIX_DEV_DONE ||
          mpix::load_once(payload + value) != test::mix(value) ||
          MPIX_Dev_flag_set(channel, 1 + team.block, round + 1) != MPIX_DEV_DONE) {
        (void)mpix::fetch_add_on_device(faults, 1);
        return;
      }
    }
  }
};

void same_flag(std::uint64_t rounds) {
  constexpr int blocks = 40;
  Channel channel(0, 1 + blocks, {});
  const std::uint64_t all = SameFlag::values * rounds;
  auto* const payload = static_cast<std::uint64_t*>(support::allocate_pinned((all + 1) * 8));
  auto* const faults = static_cast<std::uint64_t*>(support::allocate_on_device(8));
  support::launch_blocks(SameFlag{channel.device(), rounds, payload, faults}, blocks, 32);
  for (std::uint64_t value = 1; value <= all; ++value) {
    // Some are set while blocks look at the word by themselves, some when one does for all.
    if (test::mix(value) % 2 != 0) std::this_thread::sleep_for(std::chrono::microseconds(test::mix(value) % 300));
    payload[value] = test::mix(value);
    CHECK_MPI(MPIX_Channel_flag_set(channel, 0, value));
    if (value % SameFlag::values == 0 && test::mix(value) % 3 != 0)
      for (int block = 0; block < blocks; ++block)
        CHECK_MPI(MPIX_Channel_flag_wait(channel, 1 + block, value / SameFlag::values));
  }
  support::synchronize();
  std::uint64_t found = 1;
  support::to_host(&found, faults, 8);
  EXPECT(found == 0);
  support::release_on_device(faults);
  support::release_pinned(payload);
}

// ---- A slow service ----------------------------------------------------------------------------------

struct Post {
  MPIX_Dev_channel channel;
  int each;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (int i = 0; i < each; ++i) (void)MPIX_Dev_block_post(team, channel, team.block, 0, nullptr, 0);
  }
};

void slow() {
  for (const char* const kind : {"lanes", "queue"}) {
    const int lanes = 4, each = 25;
    Channel channel(lanes, 0, {{"mpix_tasks", kind}, {"mpix_depth", "2"}, {"mpix_service", "own"}});
    int taken = 0;
    channel.handle(
        0,
        [](MPIX_Channel, const MPIX_Task*, void* arg) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++*static_cast<int*>(arg);
          return MPI_SUCCESS;
        },
        &taken);
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(Post{channel.device(), each}, lanes, 32);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_disarm(channel));
    const MPIX_Channel_stats stats = channel.stats();
    EXPECT(taken == lanes * each);
    EXPECT(stats.full_waits > 20);
    EXPECT(stats.tasks == static_cast<unsigned long long>(taken));
    EXPECT(stats.longest_chain >= 2);
    EXPECT(stats.late_ns_max >= 1000000);
  }
}

// ---- Steady ------------------------------------------------------------------------------------------

void steady(int times) {
  auto* const result = static_cast<int*>(support::allocate_on_device(64));
  Holdings held;
  for (int i = 0; i < times; ++i) {
    Channel channel(4, 3, {{"mpix_service", i % 2 ? "own" : "thread"}});
    channel.handle(1, answer, nullptr);
    support::launch_blocks(PostOne{channel.device(), true, result}, 1, 32);
    support::synchronize();
    if (i == times / 5) held = Holdings::now();
  }
  held.expect_no_more();
  support::release_on_device(result);
}

// ---- Leave -------------------------------------------------------------------------------------------

void leave() {
  static std::atomic<bool> taken{false};
  auto* const results = static_cast<int*>(support::allocate_on_device(64));
  MPIX_Channel channel = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device;
  CHECK_MPI(MPIX_Channel_create(1, 1, MPI_INFO_NULL, &channel));
  CHECK_MPI(MPIX_Channel_get_device(channel, &device));
  const auto take = [](MPIX_Channel, const MPIX_Task*, void*) {
    taken = true;
    return MPI_SUCCESS;
  };
  CHECK_MPI(MPIX_Channel_set_handler(channel, 3, take, nullptr));
  CHECK_MPI(MPIX_Channel_arm(channel));
  support::launch_blocks(WaitForEver{device, results}, 2, 32);
  while (!taken) std::this_thread::yield();
  CHECK_MPI(MPI_Finalize());
  support::synchronize();
  const std::vector<int> found = results_of(results, 2);
  EXPECT(found[0] == MPIX_DEV_RELEASED);
  EXPECT(found[1] == MPIX_DEV_RELEASED);
  EXPECT(MPIX_Channel_free(&channel) == MPI_SUCCESS);
  support::release_on_device(results);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  support::choose_gpu(rank);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const std::string what = argc > 1 ? argv[1] : "";
  const std::uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (what == "tasks") {
    tasks(number ? number : 100000);
  } else if (what == "flags") {
    flags(number ? number : 200000);
    same_flag(number ? number / 1000 + 1 : 2000);
  } else if (what == "slow") {
    slow();
  } else if (what == "calls") {
    wrong_at_the_host();
    wrong_in_kernels();
    broken();
    by_hand();
    freed_at_once();
  } else if (what == "steady") {
    steady(number ? static_cast<int>(number) : 1000);
  } else if (what == "leave") {
    leave();
  } else {
    std::fprintf(stderr, "channel tasks|flags|slow|calls|steady|leave\n");
    ++failures;
  }
  if (what != "leave") CHECK_MPI(MPI_Finalize());
  if (failures == 0) std::printf("channel %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
