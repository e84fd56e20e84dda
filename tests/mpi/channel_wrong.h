// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/capture.h"
#include "support/channel.h"
#include "support/channel_handles.h"

/// Wrong calls, broken channels: of tests/mpi/channel.cpp.
namespace {

int refuse(MPIX_Channel, const MPIX_Task*, void*) { return MPI_ERR_TRUNCATE; }
int fail(MPIX_Channel, const MPIX_Task*, void*) { return -1; }  // which is no code of MPI
int accept(MPIX_Channel, const MPIX_Task*, void*) { return MPI_SUCCESS; }

/// Every call that a handler may not make of its own channel, and one that it may.
int intrude(MPIX_Channel channel, const MPIX_Task* task, void* arg) {
  MPIX_Task other;
  int found = 0;
  MPIX_Channel_stats stats;
  MPIX_Channel copy = channel;
  EXPECT_ERROR(MPIX_Channel_arm(channel), MPI_ERR_OTHER, "handler");
  EXPECT_ERROR(MPIX_Channel_disarm(channel), MPI_ERR_OTHER, "handler");
  EXPECT_ERROR(MPIX_Channel_serve(channel, nullptr), MPI_ERR_OTHER, "this channel");
  EXPECT_ERROR(MPIX_Channel_poll(channel, &other, &found), MPI_ERR_OTHER, "this channel");
  EXPECT_ERROR(MPIX_Channel_free(&copy), MPI_ERR_OTHER, "handler");
  EXPECT_ERROR(MPIX_Channel_set_handler(channel, 1, accept, nullptr), MPI_ERR_OTHER, "armed");
  CHECK_MPI(MPIX_Channel_get_stats(channel, &stats, sizeof stats));
  CHECK_MPI(MPIX_Channel_reply(channel, task, 1));
  EXPECT_ERROR(MPIX_Channel_reply(channel, task, 2), MPI_ERR_ARG, "already");
  ++*static_cast<int*>(arg);
  return MPI_SUCCESS;
}

struct Results {
  int result[14];
  std::uint64_t value;
};

/// One block does what is wrong in kernels.
struct WrongUse {
  MPIX_Dev_channel channel, other;
  Results* results;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    std::uint64_t ticket = 0, value = 0, word = 0;
    int done = 0;
    int* const r = results->result;
    r[0] = MPIX_Dev_post(channel, channel.lanes, 0, nullptr, 0);
    r[1] = MPIX_Dev_post(channel, 0, 65536, nullptr, 0);
    r[2] = MPIX_Dev_post(channel, 0, 0, &word, 6);
    r[3] = MPIX_Dev_post(channel, 0, 0, nullptr, 1);
    r[4] = MPIX_Dev_flag_set(channel, channel.flags, 1);
    r[5] = MPIX_Dev_flag_wait(channel, channel.flags, 1);
    r[6] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &ticket);
    r[7] = MPIX_Dev_reply_test(other, ticket, &done, &value);
    r[8] = MPIX_Dev_reply_wait(channel, ticket, &value);
    results->value = value;
    r[9] = MPIX_Dev_reply_wait(channel, ticket + 1, &value);  // of a task that was not posted
    (void)MPIX_Dev_flag_set(channel, 0, 7);
    r[10] = MPIX_Dev_flag_set(channel, 0, 6);
    r[11] = MPIX_Dev_flag_set(channel, 0, 7);
    r[12] = MPIX_Dev_reply_test(channel, ticket, nullptr, &value);
    r[13] = MPIX_Dev_flag_test(channel, 0, 1, nullptr);
  }
};

/// A lane with as many unread replies as it is deep.
struct Fill {
  MPIX_Dev_channel channel;
  int* results;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    std::uint64_t first = 0, second = 0, third = 0, value = 0;
    int done = 0;
    results[0] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &first);
    results[1] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &second);
    results[2] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &third);   // full
    results[3] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, nullptr);  // which has nothing to do with replies
    results[4] = MPIX_Dev_reply_wait(channel, second, &value);
    results[5] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &third);  // the first is still in the way
    results[6] = MPIX_Dev_reply_wait(channel, first, &value);
    results[7] = MPIX_Dev_reply_wait(channel, first, &value);  // once more: it is still there
    results[8] = MPIX_Dev_post(channel, 0, 0, nullptr, 0, &third);
    results[9] = MPIX_Dev_reply_wait(channel, third, &value);
    results[10] = MPIX_Dev_reply_wait(channel, first, &value);  // written over
    results[11] = MPIX_Dev_reply_test(channel, third, &done, &value);
  }
};

/// Waits for what does not come.
struct WaitForEver {
  MPIX_Dev_channel channel;
  int* results;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t ticket = 0, value = 0;
    if (team.block == 0) {
      (void)MPIX_Dev_block_post(team, channel, 0, 3, nullptr, 0, &ticket);
      const int result = MPIX_Dev_block_reply_wait(team, channel, ticket, &value);
      if (team.thread == 0) results[0] = result;
    } else {
      const int result = MPIX_Dev_block_flag_wait(team, channel, 0, 5);
      if (team.thread == 0) results[1] = result;
    }
  }
};

int answer(MPIX_Channel channel, const MPIX_Task* task, void*) {
  return task->ticket ? MPIX_Channel_reply(channel, task, 41 + task->number) : MPI_SUCCESS;
}

std::vector<int> results_of(const int* from, std::size_t count) {
  std::vector<int> all(count);
  support::to_host(all.data(), from, count * sizeof(int));
  return all;
}

#if !defined(__CUDACC__) && !defined(__HIPCC__)
/// A thread of this process.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string number, name, state;
  file >> number >> name >> state;
  return state == "S";
}

void free_under_a_wait() {
  Channel channel(0, 1, {});
  std::atomic<pid_t> waits{0};
  std::thread waiting([&] {
    waits = static_cast<pid_t>(syscall(SYS_gettid));
    CHECK_MPI(MPIX_Channel_flag_wait(channel, 0, 1));
  });
  while (waits == 0 || !sleeps(waits)) std::this_thread::yield();
  EXPECT_ERROR(MPIX_Channel_free(channel.handle()), MPI_ERR_OTHER, "in MPIX_Channel_flag_wait");
  const auto raise = [](const MPIX_Dev_team* team, void* of) {
    if (team->thread == 0) (void)MPIX_Dev_flag_set(*static_cast<MPIX_Dev_channel*>(of), 0, 1);
  };
  MPIX_Dev_channel device = channel.device();
  CHECK_MPI(MPIX_Host_stream_launch_grid(nullptr, 1, raise, &device));
  waiting.join();
  CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
}

/// Broken by its handler, and freed at once: a thread that waits for a flag has left when that returns.
void free_a_broken_one_under_a_wait() {
  for (int i = 0; i < 20; ++i) {
    Channel channel(1, 1, {{"mpix_service", "caller"}});
    CHECK_MPI(MPIX_Channel_set_handler(channel, 0, refuse, nullptr));
    CHECK_MPI(MPIX_Channel_arm(channel));
    std::atomic<pid_t> waits{0};
    std::thread waiting([&, handle = MPIX_Channel(channel)] {
      waits = static_cast<pid_t>(syscall(SYS_gettid));
      EXPECT(MPIX_Channel_flag_wait(handle, 0, 1) != MPI_SUCCESS);
    });
    while (waits == 0 || !sleeps(waits)) std::this_thread::yield();
    const auto post = [](const MPIX_Dev_team* team, void* of) {
      if (team->thread == 0) (void)MPIX_Dev_post(*static_cast<MPIX_Dev_channel*>(of), 0, 0, nullptr, 0, nullptr);
    };
    MPIX_Dev_channel device = channel.device();
    CHECK_MPI(MPIX_Host_stream_launch_grid(nullptr, 1, post, &device));
    CHECK_MPI(MPIX_Host_stream_synchronize(nullptr));
    (void)MPIX_Channel_serve(channel, nullptr);
    CHECK_MPI(MPIX_Channel_free(channel.handle()));
    waiting.join();
  }
}
#endif

void wrong_at_the_host() {
  MPIX_Channel none = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device;
  EXPECT_ERROR(MPIX_Channel_create(-1, 0, MPI_INFO_NULL, &none), MPI_ERR_ARG, "-1 lanes");
  EXPECT_ERROR(MPIX_Channel_create(0, -2, MPI_INFO_NULL, &none), MPI_ERR_ARG, "-2 flags");
  EXPECT_ERROR(MPIX_Channel_create(70000, 0, MPI_INFO_NULL, &none), MPI_ERR_ARG, "65536");
  EXPECT_ERROR(MPIX_Channel_create(1, 1, MPI_INFO_NULL, nullptr), MPI_ERR_ARG, "no place");
  EXPECT(none == MPIX_CHANNEL_NULL);
  const std::pair<const char*, const char*> wrong[] = {
      {"mpix_depth", "3"},       {"mpix_depth", "8192"}, {"mpix_depth", "-1"},    {"mpix_tasks", "stack"},
      {"mpix_layout", "sparse"}, {"mpix_fence", "warp"}, {"mpix_service", "god"}, {"mpix_words", "nowhere"},
#ifdef MPICH  // others take no empty values
      {"mpix_depth", ""},        {"mpix_tasks", ""},
#endif
  };
  for (const auto& one : wrong) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, one.first, one.second));
    EXPECT_ERROR(MPIX_Channel_create(1, 1, info, &none), MPI_ERR_INFO_VALUE,
                 (std::string(one.first) + "=" + one.second).c_str());
    CHECK_MPI(MPI_Info_free(&info));
  }
  MPI_Info deep = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&deep));
  CHECK_MPI(MPI_Info_set(deep, "mpix_depth", "4096"));
  EXPECT_ERROR(MPIX_Channel_create(65536, 0, deep, &none), MPI_ERR_ARG, "places");
  CHECK_MPI(MPI_Info_free(&deep));
  EXPECT_ERROR(MPIX_Channel_free(&none), MPI_ERR_ARG, "no such channel");
  EXPECT_ERROR(MPIX_Channel_get_device(none, &device), MPI_ERR_ARG, "no such channel");

  {
    test::Capture log(2);
    const Channel misspelt(1, 1, {{"mpix_unknown", "1"}});
    EXPECT(log.end().find("unknown info key mpix_unknown") != std::string::npos);
  }
  Channel channel(2, 2, {{"mpix_service", "own"}});
  MPIX_Task task{};
  int found = 0;
  unsigned long long value = 0;
  EXPECT_ERROR(MPIX_Channel_disarm(channel), MPI_ERR_OTHER, "not armed");
  EXPECT_ERROR(MPIX_Channel_poll(channel, &task, &found), MPI_ERR_OTHER, "mpix_service=caller");
  EXPECT_ERROR(MPIX_Channel_serve(channel, &found), MPI_ERR_OTHER, "mpix_service=caller");
  EXPECT_ERROR(MPIX_Channel_set_handler(channel, 65536, accept, nullptr), MPI_ERR_ARG, "65536");
  EXPECT_ERROR(MPIX_Channel_reply(channel, &task, 1), MPI_ERR_ARG, "nobody waits");
  EXPECT_ERROR(MPIX_Channel_reply(channel, nullptr, 1), MPI_ERR_ARG, "no task");
  EXPECT_ERROR(MPIX_Channel_flag_set(channel, 2, 1), MPI_ERR_ARG, "flag 2 of 2");
  EXPECT_ERROR(MPIX_Channel_flag_set(channel, -1, 1), MPI_ERR_ARG, "flag -1");
  EXPECT_ERROR(MPIX_Channel_flag_get(channel, 2, &value), MPI_ERR_ARG, "flag 2 of 2");
  EXPECT_ERROR(MPIX_Channel_flag_wait(channel, 2, 1), MPI_ERR_ARG, "flag 2 of 2");
  EXPECT_ERROR(MPIX_Channel_flag_get(channel, 0, nullptr), MPI_ERR_ARG, "no place");
  CHECK_MPI(MPIX_Channel_flag_set(channel, 0, 5));
  CHECK_MPI(MPIX_Channel_flag_set(channel, 0, 5));
  EXPECT_ERROR(MPIX_Channel_flag_set(channel, 0, 4), MPI_ERR_ARG, "is less");
  CHECK_MPI(MPIX_Channel_arm(channel));
  EXPECT_ERROR(MPIX_Channel_arm(channel), MPI_ERR_OTHER, "armed already");
  EXPECT_ERROR(MPIX_Channel_set_handler(channel, 0, accept, nullptr), MPI_ERR_OTHER, "armed");
  EXPECT_ERROR(MPIX_Channel_free(channel.handle()), MPI_ERR_OTHER, "armed");
  CHECK_MPI(MPIX_Channel_disarm(channel));
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  free_under_a_wait();
  free_a_broken_one_under_a_wait();
  EXPECT_ERROR(MPIX_Host_stream_launch_grid(
                   nullptr, 0, [](const MPIX_Dev_team*, void*) {}, nullptr),
               MPI_ERR_ARG, "0 blocks");
  EXPECT_ERROR(MPIX_Host_stream_launch_grid(nullptr, 1, nullptr, nullptr), MPI_ERR_ARG, "no function");
#endif
}

void wrong_in_kernels() {
  auto* const memory = support::allocate_on_device(sizeof(Results));
  auto* const results = static_cast<int*>(memory);
  {
    Channel channel(1, 1, {{"mpix_service", "own"}}), other(1, 1, {{"mpix_service", "own"}});
    channel.handle(0, answer, nullptr);
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(WrongUse{channel.device(), other.device(), static_cast<Results*>(memory)}, 1, 1);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_disarm(channel));
    const int a = MPIX_DEV_ARG, expected[] = {a, a, a, a, a, a, 0, a, 0, a, a, 0, a, a};
    expect_results("wrong use", results, {std::begin(expected), std::end(expected)});
    Results all;
    support::to_host(&all, memory, sizeof all);
    EXPECT(all.value == 42);
    EXPECT(channel.stats().tasks == 1);
    EXPECT(channel.stats().refused == 1);
  }
  {
    Channel channel(1, 0, {{"mpix_service", "own"}, {"mpix_depth", "2"}});
    channel.handle(0, answer, nullptr);
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(Fill{channel.device(), results}, 1, 1);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_disarm(channel));
    const int f = MPIX_DEV_FULL, expected[] = {0, 0, f, 0, 0, f, 0, 0, 0, 0, MPIX_DEV_ARG, 0};
    expect_results("full", results, {std::begin(expected), std::end(expected)});
  }
  support::release_on_device(memory);
}

/// Kernels that wait are released, and calls say why.
void broken() {
  auto* const results = static_cast<int*>(support::allocate_on_device(64));
  struct Way {
    MPIX_Task_function* handler;
    const char* text;
  };
  for (const Way way : {Way{refuse, "handler of task 1 of lane 0, of kind 3 has failed"},
                        Way{fail, "has failed: error -1"}, Way{nullptr, "no handler for task 1"}}) {
    Channel channel(1, 1, {{"mpix_service", "own"}, {"mpix_name", "doomed"}});
    channel.handle(3, way.handler, nullptr);
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(WaitForEver{channel.device(), results}, 2, 32);
    support::synchronize();
    const std::vector<int> found = results_of(results, 2);
    EXPECT(found[0] == MPIX_DEV_RELEASED);
    EXPECT(found[1] == MPIX_DEV_RELEASED);
    EXPECT_ERROR(MPIX_Channel_disarm(channel), MPI_ERR_OTHER, way.text);
    EXPECT_ERROR(MPIX_Channel_arm(channel), MPI_ERR_OTHER, "channel 'doomed' is broken");
    EXPECT_ERROR(MPIX_Channel_flag_set(channel, 0, 9), MPI_ERR_OTHER, way.text);
    EXPECT_ERROR(MPIX_Channel_flag_wait(channel, 0, 9), MPI_ERR_OTHER, way.text);
    unsigned long long value = 77;
    EXPECT_ERROR(MPIX_Channel_flag_get(channel, 0, &value), MPI_ERR_OTHER, way.text);
    EXPECT(value == 77);
  }
  {  // after the end of the channel, also where its memory has another
    Channel channel(1, 1, {{"mpix_service", "own"}});
    const MPIX_Dev_channel old = channel.device();
    CHECK_MPI(MPIX_Channel_free(channel.handle()));
    for (int again = 0; again < 2; ++again) {
      support::launch_blocks(WaitForEver{old, results}, 2, 32);
      support::synchronize();
      const std::vector<int> found = results_of(results, 2);
      EXPECT(found[0] == MPIX_DEV_RELEASED);
      EXPECT(found[1] == MPIX_DEV_RELEASED);
      if (again == 0) CHECK_MPI(MPIX_Channel_create(1, 1, MPI_INFO_NULL, channel.handle()));
    }
  }
  support::release_on_device(results);
}

struct PostOne {
  MPIX_Dev_channel channel;
  bool waits;
  int* result;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    std::uint64_t ticket = 0, value = 0;
    const std::uint64_t word = 17;
    (void)MPIX_Dev_block_post(team, channel, team.block, 1, &word, 1, waits ? &ticket : nullptr);
    if (waits && team.thread == 0) *result = MPIX_Dev_reply_wait(channel, ticket, &value);
  }
};

/// What is posted when a channel is freed is handled before.
void freed_at_once() {
  auto* const result = static_cast<int*>(support::allocate_on_device(64));
  const auto nap = [](MPIX_Channel channel, const MPIX_Task*, void* taken) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++*static_cast<int*>(taken);
    return MPIX_Channel_flag_set(channel, 0, static_cast<unsigned long long>(*static_cast<int*>(taken)));
  };
  for (const char* const service : {"own", "thread", "caller"}) {
    int taken = 0;
    {
      Channel channel(9, 1, {{"mpix_service", service}});
      channel.handle(1, nap, &taken);
      support::launch_blocks(PostOne{channel.device(), false, result}, 9, 32);
      support::synchronize();
    }
    EXPECT(taken == 9);
  }
  {  // those that the program would have polled are nobody's
    Channel channel(9, 1, {{"mpix_service", "caller"}});
    support::launch_blocks(PostOne{channel.device(), false, result}, 9, 32);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_free(channel.handle()));
  }
  {  // by a handler of another channel, whose thread is that which handles
    Channel channel(1, 0, {{"mpix_service", "thread"}});
    static int taken = 0;
    Channel other(9, 1, {{"mpix_service", "thread"}});
    other.handle(1, nap, &taken);
    channel.handle(
        1,
        [](MPIX_Channel, const MPIX_Task*, void* gone) { return MPIX_Channel_free(static_cast<MPIX_Channel*>(gone)); },
        other.handle());
    support::launch_blocks(PostOne{other.device(), false, result}, 9, 32);
    support::launch_blocks(PostOne{channel.device(), false, result}, 1, 32);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_free(channel.handle()));
    EXPECT(taken == 9);
    EXPECT(*other.handle() == MPIX_CHANNEL_NULL);
  }
  support::release_on_device(result);
}

void by_hand() {
  auto* const result = static_cast<int*>(support::allocate_on_device(64));
  {  // tasks one by one, and a reply from another thread
    Channel channel(1, 0, {{"mpix_service", "caller"}});
    support::launch_blocks(PostOne{channel.device(), true, result}, 1, 32);
    MPIX_Task task{};
    int found = 0;
    while (!found) CHECK_MPI(MPIX_Channel_poll(channel, &task, &found));
    EXPECT(task.kind == 1 && task.words == 1 && task.word[0] == 17 && task.lane == 0 && task.number == 1);
    std::thread([&] { CHECK_MPI(MPIX_Channel_reply(channel, &task, 3)); }).join();
    support::synchronize();
    EXPECT(results_of(result, 1)[0] == 0);
    CHECK_MPI(MPIX_Channel_poll(channel, &task, &found));
    EXPECT(!found);
    EXPECT(channel.stats().tasks == 1);
    EXPECT(channel.stats().replies == 1);
  }
  {  // what was posted while it was not armed is late, and not lost
    Channel channel(1, 0, {{"mpix_service", "own"}});
    int taken = 0;
    channel.handle(1, intrude, &taken);
    CHECK_MPI(MPIX_Channel_arm(channel));
    support::launch_blocks(PostOne{channel.device(), true, result}, 1, 32);
    support::synchronize();
    CHECK_MPI(MPIX_Channel_disarm(channel));
    EXPECT(taken == 1);
    channel.handle(1, answer, nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    support::launch_blocks(PostOne{channel.device(), true, result}, 1, 32);
    support::synchronize();
    EXPECT(results_of(result, 1)[0] == 0);
    EXPECT(channel.stats().tasks == 2);
  }
  support::release_on_device(result);
}

}  // namespace
