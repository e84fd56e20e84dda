// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Channels in programs that do other things, too; their blocks are threads:
//
//   mpiexec -n 2 channel_program ring      handlers send and receive, whoever calls them
//   mpiexec -n 1 channel_program funneled  without MPI_THREAD_MULTIPLE the program serves
//   mpiexec -n 1 channel_program asked     with MPIX_CHANNEL_THREAD=on a thread does all the same
//   mpiexec -n 1 channel_program core      MPIX_CHANNEL_CORE
//   mpiexec -n 1 channel_program grids     many threads as blocks; behind stream epochs, where there are several ranks
//   mpiexec -n 1 channel_program two       several channels at once, with signals
//   mpiexec -n 1 channel_program many      a thousand alive
//   mpiexec -n 1 channel_program fork      a child of fork()
//   mpiexec -n 1 channel_program leave     MPI_Finalize, while a block waits and a handler is under way
#include <mpi.h>
#include <mpix.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/channel.h"
#include "support/channel_handles.h"

namespace {

using std::chrono::milliseconds;

int size = 1;

/// Each task gets the reply 40 + its word.
int add_40(MPIX_Channel channel, const MPIX_Task* task, void* arg) {
  if (arg) ++*static_cast<std::atomic<int>*>(arg);
  return task->ticket ? MPIX_Channel_reply(channel, task, 40 + task->word[0]) : MPI_SUCCESS;
}

/// A block posts so many tasks, and checks the reply of each.
struct Ask {
  MPIX_Dev_channel channel;
  int each;
  std::atomic<int>* right;
  void operator()(const MPIX_Dev_team& team) const {
    for (int i = 0; i < each; ++i) {
      std::uint64_t ticket = 0, value = 0;
      const auto word = static_cast<std::uint64_t>(i);
      if (MPIX_Dev_block_post(team, channel, team.block, 0, &word, 1, &ticket) == MPIX_DEV_DONE &&
          MPIX_Dev_block_reply_wait(team, channel, ticket, &value) == MPIX_DEV_DONE && value == 40 + word)
        ++*right;
    }
  }
};

// ---- Handlers that call MPI --------------------------------------------------------------------------

constexpr int ring_lanes = 3, ring_tasks = 60;

/// A task sends the lane's number to the right, receives the left one's, and is replied when both are over.
struct Ring {
  struct Exchange {
    MPIX_Task task;
    MPI_Request requests[2];
    std::uint64_t out, in;
  };
  std::mutex mutex;
  std::vector<std::unique_ptr<Exchange>> open;

  static int begin(MPIX_Channel, const MPIX_Task* task, void* arg) {
    auto& ring = *static_cast<Ring*>(arg);
    auto one = std::make_unique<Exchange>();
    one->task = *task;
    one->out = task->word[0];
    const int tag = static_cast<int>(task->lane);
    CHECK_MPI(MPI_Irecv(&one->in, 1, MPI_UINT64_T, (rank + size - 1) % size, tag, MPI_COMM_WORLD, &one->requests[0]));
    CHECK_MPI(MPI_Isend(&one->out, 1, MPI_UINT64_T, (rank + 1) % size, tag, MPI_COMM_WORLD, &one->requests[1]));
    const std::lock_guard<std::mutex> hold(ring.mutex);
    ring.open.push_back(std::move(one));
    return MPI_SUCCESS;
  }
  void test(MPIX_Channel channel) {
    const std::lock_guard<std::mutex> hold(mutex);
    for (std::size_t i = 0; i < open.size();) {
      int over = 0;
      CHECK_MPI(MPI_Testall(2, open[i]->requests, &over, MPI_STATUSES_IGNORE));
      if (!over) {
        ++i;
        continue;
      }
      CHECK_MPI(MPIX_Channel_reply(channel, &open[i]->task, open[i]->in));
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
};

std::uint64_t ring_word(int of, unsigned lane, int i) {
  return static_cast<std::uint64_t>(of) << 32 | std::uint64_t{lane} << 16 | static_cast<std::uint64_t>(i);
}

void ring() {
  struct Go {
    MPIX_Dev_channel channel;
    std::atomic<int>*right, *over;
    void operator()(const MPIX_Dev_team& team) const {
      for (int i = 0; i < ring_tasks; ++i) {
        std::uint64_t ticket = 0, value = 0;
        const std::uint64_t word = ring_word(rank, team.block, i);
        if (MPIX_Dev_block_post(team, channel, team.block, 0, &word, 1, &ticket) == MPIX_DEV_DONE &&
            MPIX_Dev_block_reply_wait(team, channel, ticket, &value) == MPIX_DEV_DONE &&
            value == ring_word((rank + size - 1) % size, team.block, i))
          ++*right;
      }
      ++*over;
    }
  };
  for (const char* const tasks : {"lanes", "queue"})
    for (const char* const service : {"own", "thread", "caller"}) {
      Ring state;
      Channel channel(ring_lanes, 0, {{"mpix_service", service}, {"mpix_tasks", tasks}, {"mpix_depth", "4"}});
      channel.handle(0, Ring::begin, &state);
      std::atomic<int> right{0}, over{0};
      CHECK_MPI(MPIX_Channel_arm(channel));
      support::launch_blocks(Go{channel.device(), &right, &over}, ring_lanes, 1);
      while (over < ring_lanes) {
        if (std::strcmp(service, "caller") == 0) CHECK_MPI(MPIX_Channel_serve(channel, nullptr));
        state.test(channel);
        std::this_thread::yield();
      }
      support::synchronize();
      CHECK_MPI(MPIX_Channel_disarm(channel));
      EXPECT(right == ring_lanes * ring_tasks);
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

// ---- Levels of threads -------------------------------------------------------------------------------

bool is_served_by_program(MPIX_Channel channel) {
  MPIX_Task task;
  int found = 0;
  return MPIX_Channel_poll(channel, &task, &found) == MPI_SUCCESS;
}

void funneled() {
  int level = MPI_THREAD_SINGLE;
  CHECK_MPI(MPI_Query_thread(&level));
  if (level == MPI_THREAD_MULTIPLE) {
    std::printf("MPI gives all threads all the same\n");
    return;
  }
  const Channel preset(1, 0), asked(1, 0, {{"mpix_service", "auto"}});
  EXPECT(is_served_by_program(preset));
  EXPECT(is_served_by_program(asked));
  for (const char* const service : {"own", "thread"}) {
    MPIX_Channel none = MPIX_CHANNEL_NULL;
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_service", service));
    const int code = MPIX_Channel_create(1, 0, info, &none);
    EXPECT_ERROR(code, MPI_ERR_UNSUPPORTED_OPERATION, "MPI_THREAD_MULTIPLE");
    EXPECT_ERROR(code, MPI_ERR_UNSUPPORTED_OPERATION, "MPIX_CHANNEL_THREAD=on");
    EXPECT_ERROR(code, MPI_ERR_UNSUPPORTED_OPERATION, "mpix_service=caller");
    EXPECT(none == MPIX_CHANNEL_NULL);
    CHECK_MPI(MPI_Info_free(&info));
  }
  // And it works.
  std::atomic<int> taken{0}, right{0};
  preset.handle(0, add_40, &taken);
  CHECK_MPI(MPIX_Channel_arm(preset));
  support::launch_blocks(Ask{preset.device(), 100, &right}, 1, 1);
  while (right < 100) CHECK_MPI(MPIX_Channel_serve(preset, nullptr));
  support::synchronize();
  CHECK_MPI(MPIX_Channel_disarm(preset));
  EXPECT(taken == 100);
}

void asked() {
  const Channel channel(2, 0);
  EXPECT(!is_served_by_program(channel));
  std::atomic<int> right{0};
  channel.handle(0, add_40, nullptr);
  support::launch_blocks(Ask{channel.device(), 10, &right}, 2, 1);
  support::synchronize();
  EXPECT(right == 20);
}

// ---- Where the thread runs ---------------------------------------------------------------------------

void core() {
  const char* const text = std::getenv("MPIX_CHANNEL_CORE");
  const Channel channel(1, 0, {{"mpix_service", "own"}});
  cpu_set_t ours;
  CHECK_MPI(sched_getaffinity(0, sizeof ours, &ours) == 0 ? MPI_SUCCESS : MPI_ERR_OTHER);
  cpu_set_t theirs;
  CPU_ZERO(&theirs);
  channel.handle(
      0,
      [](MPIX_Channel from, const MPIX_Task* task, void* arg) {
        (void)sched_getaffinity(0, sizeof(cpu_set_t), static_cast<cpu_set_t*>(arg));
        return add_40(from, task, nullptr);
      },
      &theirs);
  std::atomic<int> right{0};
  support::launch_blocks(Ask{channel.device(), 3, &right}, 1, 1);
  support::synchronize();
  EXPECT(right == 3);
  // Where there is no such core, it runs on any.
  if (text && std::strcmp(text, "0") == 0 && CPU_ISSET(0, &ours))
    EXPECT(CPU_COUNT(&theirs) == 1 && CPU_ISSET(0, &theirs));
  else
    EXPECT(CPU_EQUAL(&ours, &theirs));
}

// ---- Grids -------------------------------------------------------------------------------------------

void grids(const char* service) {
  constexpr int blocks = 200, rounds = 5;
  const Channel channel(blocks, 0, {{"mpix_service", service}});
  std::atomic<int> taken{0}, right{0};
  channel.handle(0, add_40, &taken);
  CHECK_MPI(MPIX_Channel_arm(channel));
  MPIX_Host_stream stream = nullptr;
  CHECK_MPI(MPIX_Host_stream_create(&stream));

  // A window whose epochs stand before and behind the grids: each grid sends on what the epoch before has brought.
  const auto count = static_cast<std::size_t>(size);
  std::vector<int> window(count, -1), out(count, -1);
  MPI_Win win = MPI_WIN_NULL;
  const bool has_epochs = size > 1;  // Open MPI 4.1.4 has no windows of one rank
  if (has_epochs)
    CHECK_MPI(MPI_Win_create(window.data(), static_cast<MPI_Aint>(count * sizeof(int)), sizeof(int), MPI_INFO_NULL,
                             MPI_COMM_WORLD, &win));
  MPI_Group world = MPI_GROUP_NULL;
  CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  struct Step {
    MPIX_Dev_channel channel;
    std::atomic<int>* right;
    std::vector<int>*window, *out;
    int round;
    void operator()(const MPIX_Dev_team& team) const {
      Ask{channel, 2, right}(team);
      if (team.block != 0) return;
      if (round > 0)
        for (std::size_t r = 0; r < window->size(); ++r)
          if ((*window)[r] == static_cast<int>(r) * 1000 + round - 1) ++*right;
      for (int& one : *out) one = rank * 1000 + round;
    }
  };
  for (int round = 0; round < rounds; ++round) {
    support::launch_blocks(Step{channel.device(), &right, &window, &out, round}, blocks, 1, stream);
    if (!has_epochs) continue;
    CHECK_MPI(MPIX_Win_post_stream(world, win, stream));
    CHECK_MPI(MPI_Win_start(world, MPIX_MODE_STREAM, win));
    for (int r = 0; r < size; ++r)
      CHECK_MPI(MPI_Put(&out[static_cast<std::size_t>(r)], 1, MPI_INT, r, rank, 1, MPI_INT, win));
    CHECK_MPI(MPIX_Win_complete_wait_stream(win, stream));
  }
  CHECK_MPI(MPIX_Host_stream_synchronize(stream));
  CHECK_MPI(MPIX_Channel_disarm(channel));
  EXPECT(taken == blocks * rounds * 2);
  EXPECT(right == blocks * rounds * 2 + (has_epochs ? (rounds - 1) * size : 0));
  if (has_epochs) CHECK_MPI(MPI_Win_free(&win));
  CHECK_MPI(MPI_Group_free(&world));
  CHECK_MPI(MPIX_Host_stream_destroy(&stream));
}

/// The one thread of the library carries the epochs, too, where MPIX_RELAY=on.
void grids() {
  grids("own");
  grids("thread");
}

// ---- Several channels, signals -----------------------------------------------------------------------

pthread_t main_thread;
std::atomic<int> signals{0}, signals_elsewhere{0};

void two() {
  main_thread = pthread_self();
  struct sigaction action {};
  action.sa_handler = [](int) {
    ++signals;
    if (!pthread_equal(pthread_self(), main_thread)) ++signals_elsewhere;
  };
  action.sa_flags = SA_RESTART;
  (void)sigaction(SIGUSR1, &action, nullptr);
  const Channel first(8, 0, {{"mpix_service", "own"}}), second(8, 0, {{"mpix_service", "thread"}}),
      idle(8, 2, {{"mpix_service", "own"}});
  std::atomic<int> right{0}, over{0};
  first.handle(0, add_40, nullptr);
  second.handle(0, add_40, nullptr);
  CHECK_MPI(MPIX_Channel_arm(first));
  CHECK_MPI(MPIX_Channel_arm(second));
  CHECK_MPI(MPIX_Channel_arm(idle));
  MPIX_Host_stream streams[2] = {nullptr, nullptr};
  for (MPIX_Host_stream& stream : streams) CHECK_MPI(MPIX_Host_stream_create(&stream));
  constexpr int each = 300;
  struct Go {
    Ask ask;
    std::atomic<int>* over;
    void operator()(const MPIX_Dev_team& team) const {
      ask(team);
      ++*over;
    }
  };
  support::launch_blocks(Go{Ask{first.device(), each, &right}, &over}, 8, 1, streams[0]);
  support::launch_blocks(Go{Ask{second.device(), each, &right}, &over}, 8, 1, streams[1]);
  while (over < 16) {
    (void)kill(getpid(), SIGUSR1);
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (MPIX_Host_stream& stream : streams) {
    CHECK_MPI(MPIX_Host_stream_synchronize(stream));
    CHECK_MPI(MPIX_Host_stream_destroy(&stream));
  }
  CHECK_MPI(MPIX_Channel_disarm(first));
  CHECK_MPI(MPIX_Channel_disarm(second));
  CHECK_MPI(MPIX_Channel_disarm(idle));
  EXPECT(right == 2 * 8 * each);
  EXPECT(signals > 0);
  EXPECT(signals_elsewhere == 0);
  EXPECT(idle.stats().tasks == 0);
}

void many() {
  std::vector<std::unique_ptr<Channel>> channels;
  std::atomic<int> right{0};
  for (int i = 0; i < 1000; ++i) {
    channels.push_back(std::make_unique<Channel>(2, 1,
                                                 Keys{{"mpix_service", i % 4 == 0   ? "own"
                                                                       : i % 4 == 1 ? "thread"
                                                                                    : "caller"},
                                                      {"mpix_depth", "2"}}));
    channels.back()->handle(0, add_40, nullptr);
  }
  for (std::size_t i = 0; i < channels.size(); ++i)
    if (i % 4 < 2) support::launch_blocks(Ask{channels[i]->device(), 2, &right}, 2, 1);
  support::synchronize();
  EXPECT(right == 500 * 4);
}

// ---- A child, and the end ----------------------------------------------------------------------------

void child() {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  for (const char* const service : {"own", "thread", "caller"}) {
    Channel channel(1, 1, {{"mpix_service", service}});
    channel.handle(0, add_40, nullptr);
    const pid_t pid = fork();
    if (pid == 0) {  // it has the words, and none of the threads
      alarm(30);
      unsigned long long value = 1;
      if (MPIX_Channel_flag_get(channel, 0, &value) != MPI_SUCCESS || value != 0) _exit(2);
      _exit(MPIX_Channel_free(channel.handle()) == MPI_SUCCESS ? 0 : 3);
    }
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (std::strcmp(service, "caller") == 0) continue;
    std::atomic<int> right{0};  // the parent goes on
    support::launch_blocks(Ask{channel.device(), 10, &right}, 1, 1);
    support::synchronize();
    EXPECT(right == 10);
  }
#endif
}

std::atomic<int> left_results[3];
std::atomic<bool> handler_begun{false}, handler_over{false};

void leave() {
  static MPIX_Channel channel = MPIX_CHANNEL_NULL, busy = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device, busy_device;
  CHECK_MPI(MPIX_Channel_create(2, 1, MPI_INFO_NULL, &channel));
  CHECK_MPI(MPIX_Channel_get_device(channel, &device));
  CHECK_MPI(MPIX_Channel_set_handler(
      channel, 0, [](MPIX_Channel, const MPIX_Task*, void*) -> int { return MPI_SUCCESS; }, nullptr));
  CHECK_MPI(MPIX_Channel_arm(channel));
  CHECK_MPI(MPIX_Channel_create(1, 0, MPI_INFO_NULL, &busy));
  CHECK_MPI(MPIX_Channel_get_device(busy, &busy_device));
  CHECK_MPI(MPIX_Channel_set_handler(
      busy, 0,
      [](MPIX_Channel from, const MPIX_Task* task, void*) -> int {
        handler_begun = true;
        std::this_thread::sleep_for(milliseconds(300));  // until MPI_Finalize waits for it
        (void)MPIX_Channel_reply(from, task, 1);
        handler_over = true;
        return MPI_SUCCESS;
      },
      nullptr));
  static MPIX_Halo halo = MPIX_HALO_NULL;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, MPI_INFO_NULL, &halo));
  struct Waits {
    MPIX_Dev_channel channel, busy;
    void operator()(const MPIX_Dev_team& team) const {
      std::uint64_t ticket = 0, value = 0;
      const MPIX_Dev_channel& mine = team.block == 2 ? busy : channel;
      if (team.block == 1) {
        left_results[1] = MPIX_Dev_flag_wait(channel, 0, 1);
        return;
      }
      (void)MPIX_Dev_post(mine, 0, 0, nullptr, 0, &ticket);
      left_results[team.block] = MPIX_Dev_reply_wait(mine, ticket, &value);
    }
  };
  MPIX_Host_stream stream = nullptr;
  CHECK_MPI(MPIX_Host_stream_create(&stream));
  for (auto& result : left_results) result = -1;
  support::launch_blocks(Waits{device, busy_device}, 3, 1, stream);
  while (!handler_begun) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  CHECK_MPI(MPI_Finalize());
  EXPECT(handler_over);
  const auto begin = std::chrono::steady_clock::now();
  while ((left_results[0] < 0 || left_results[1] < 0 || left_results[2] < 0) &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(30))
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT(left_results[0] == MPIX_DEV_RELEASED);
  EXPECT(left_results[1] == MPIX_DEV_RELEASED);
  EXPECT(left_results[2] == MPIX_DEV_RELEASED);
  // Without MPI there are no error handlers: codes alone.
  EXPECT(MPIX_Channel_flag_set(channel, 0, 1) != MPI_SUCCESS);
  EXPECT(MPIX_Channel_disarm(channel) != MPI_SUCCESS);
  EXPECT(MPIX_Channel_free(&channel) == MPI_SUCCESS);
  EXPECT(channel == MPIX_CHANNEL_NULL);
  EXPECT(MPIX_Halo_free(&halo) == MPI_ERR_OTHER);  // it was broken, as the channels were
  EXPECT(halo == MPIX_HALO_NULL);
  MPIX_Drequest request;
  MPIX_Dev domain = MPIX_DEV_NULL;
  EXPECT(MPIX_Channel_create(1, 1, MPI_INFO_NULL, &channel) == MPI_ERR_OTHER);
  EXPECT(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, MPI_INFO_NULL, &halo) == MPI_ERR_OTHER);
  EXPECT(MPIX_Get_drequest(MPI_REQUEST_NULL, &request) == MPI_ERR_OTHER);
  EXPECT(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &domain) == MPI_ERR_OTHER);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "funneled") {
    int provided = 0;
    CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
  } else if (what == "asked") {
    CHECK_MPI(MPI_Init(&argc, &argv));
  } else {
    int provided = 0;
    CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  }
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const struct {
    const char* name;
    void (*run)();
  } all[] = {{"ring", ring}, {"funneled", funneled}, {"asked", asked}, {"core", core},  {"grids", grids},
             {"two", two},   {"many", many},         {"fork", child},  {"leave", leave}};
  bool is_known = false;
  for (const auto& one : all) {
    if (what != one.name) continue;
    is_known = true;
    one.run();
  }
  if (!is_known) {
    std::fprintf(stderr, "channel_program ring|funneled|asked|core|grids|two|many|fork|leave\n");
    ++failures;
  }
  if (what != "leave") CHECK_MPI(MPI_Finalize());
  if (failures == 0 && rank == 0) std::printf("channel_program %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
