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

#include "support/channel.h"
#include "support/channel_handles.h"
#include "support/random.h"

namespace {

// ---- Tasks -------------------------------------------------------------------------------------------

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
  const int most_lanes = support::ranks_are_blocks ? 132 : 27;
  int turn = 0;
  for (const char* const kind : {"lanes", "queue"})
    for (const char* const depth : {"1", "2", "8", "512"})
      for (const int lanes : {1, 5, most_lanes})
        for (const char* const service : {"caller", "own", "thread"}) {
          const int words = turn % 6;
          const char* const layout = turn % 2 ? "dense" : "padded";
          const char* const fence = turn % 5 == 0 ? "thread" : "block";
          ++turn;
          const std::uint64_t each = wanted / 72 / static_cast<std::uint64_t>(lanes) + 1;
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
  for (const int count : {1, 27, support::ranks_are_blocks ? 132 : 27})
    for (const char* const layout : {"padded", "dense"}) {
      Channel channel(0, count, {{"mpix_layout", layout}, {"mpix_fence", count == 1 ? "thread" : "block"}});
      const auto all = static_cast<std::size_t>(count);
      auto* const up = static_cast<std::uint64_t*>(support::allocate_pinned(all * payload_words * 8));
      auto* const down = static_cast<std::uint64_t*>(support::allocate_pinned(all * payload_words * 8));
      auto* const faults = static_cast<std::uint64_t*>(support::allocate_on_device(all * 8));
      const std::uint64_t each = wanted / 6 / all + 1, step = 3;
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
      std::printf("%d flags, %s: %llu numbers each\n", count, layout, static_cast<unsigned long long>(each));
      support::release_on_device(faults);
      support::release_pinned(up);
      support::release_pinned(down);
    }
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

// ---- Wrong calls, broken channels --------------------------------------------------------------------

int refuse(MPIX_Channel, const MPIX_Task*, void*) { return MPI_ERR_TRUNCATE; }
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
  int result[12];
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
      {"mpix_layout", "sparse"}, {"mpix_fence", "warp"}, {"mpix_service", "god"}, {"mpix_words", "nowhere"}};
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

  Channel channel(2, 2, {{"mpix_service", "own"}, {"mpix_unknown", "1"}});
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
    const int a = MPIX_DEV_ARG, expected[] = {a, a, a, a, a, a, 0, a, 0, a, a, 0};
    const std::vector<int> found = results_of(results, 12);
    for (int i = 0; i < 12; ++i) {
      if (found[static_cast<std::size_t>(i)] == expected[i]) continue;
      std::printf("wrong use %d: %d\n", i, found[static_cast<std::size_t>(i)]);
      ++failures;
    }
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
    const std::vector<int> found = results_of(results, 12);
    for (int i = 0; i < 12; ++i) {
      if (found[static_cast<std::size_t>(i)] == expected[i]) continue;
      std::printf("full %d: %d\n", i, found[static_cast<std::size_t>(i)]);
      ++failures;
    }
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
  for (const Way way :
       {Way{refuse, "handler of task 1 of lane 0, of kind 3 has failed"}, Way{nullptr, "no handler for task 1"}}) {
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

// ---- Steady ------------------------------------------------------------------------------------------

long status_of(const char* what) {
  long value = -1;
  char line[256];
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  while (status && std::fgets(line, sizeof line, status))
    if (std::strncmp(line, what, std::strlen(what)) == 0) value = std::atol(line + std::strlen(what));
  if (status) std::fclose(status);
  return value;
}

void steady(int times) {
  auto* const result = static_cast<int*>(support::allocate_on_device(64));
  long threads = 0, kilobytes = 0;
  for (int i = 0; i < times; ++i) {
    Channel channel(4, 3, {{"mpix_service", i % 2 ? "own" : "thread"}});
    channel.handle(1, answer, nullptr);
    support::launch_blocks(PostOne{channel.device(), true, result}, 1, 32);
    support::synchronize();
    if (i != times / 5) continue;
    threads = status_of("Threads:");
    kilobytes = status_of("VmRSS:");
  }
  const long later = status_of("VmRSS:");
  EXPECT(status_of("Threads:") <= threads);
  EXPECT(later - kilobytes < 1000);
  std::printf("%ld threads, %ld kB; then %ld kB\n", threads, kilobytes, later);
  support::release_on_device(result);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  support::choose_gpu(rank);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const std::string what = argc > 1 ? argv[1] : "";
  const std::uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (what == "tasks") {
    tasks(number ? number : 100000);
  } else if (what == "flags") {
    flags(number ? number : 60000);
  } else if (what == "slow") {
    slow();
  } else if (what == "calls") {
    wrong_at_the_host();
    wrong_in_kernels();
    broken();
    by_hand();
  } else if (what == "steady") {
    steady(number ? static_cast<int>(number) : 1000);
  } else {
    std::fprintf(stderr, "channel tasks|flags|slow|calls|steady\n");
    ++failures;
  }
  CHECK_MPI(MPI_Finalize());
  if (failures == 0) std::printf("channel %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
