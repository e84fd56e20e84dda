// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What channels cost, beside the same loops by hand in the same run; blocks are threads or, compiled as CUDA or HIP,
// those of a kernel.
//
//   mpiexec -n 1|2 notify [--blocks=N,N,…] [--runs=N] [--idle=MILLISECONDS] [--csv]
//   mpiexec -n 1|2 notify --soak=SECONDS [--seed=N]    measures nothing: checks all that channels offer, at random
//
// pipelined  every block posts events as fast as there is room: millions a second of all blocks
// blocking   every block posts one, and waits for the answer: likewise; and microseconds a round trip
// posts      one block posts with a fence in front, or without (event), into a ring with room; by hand a bare store,
//            behind a fence or without one
// flags      one block and the program answer each other's flags: microseconds a round trip; by hand a word each way
// one by one each round trip of a block is timed by itself: the median, and what 99 of 100 take at most
// one way    from in front of a post to its handler, and from there to behind the wait, by clocks that are compared
//            before and behind. Their error may move from one way to the other. Of one launch
// beside     what 27 blocks that wait for flags cost a kernel that moves memory; with two processes, messages of MPI
// read and write  one of the other side's word and one of the own, in nanoseconds, while the other side does the same:
//            Table 1 of Elis et al. 2024, whose figures (Power9 and V100, Icelake and V100, Rome and MI100) stand
//            beside
// idle       share of a core that the thread of a channel takes, armed and not
//
// A figure is the median of several launches, by hand and by the library in turns. By hand an answer is looked for at
// once, as a program would write it.
#include <mpi.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bare.h"
#include "benchmarks/command_line.h"
#include "channel.h"
#include "one_by_one.h"
#include "soak.h"
#include "support/channel.h"
#include "table.h"
#include "waiting.h"

namespace {

using namespace notify;

/// One thread of each block.
struct Post {
  MPIX_Dev_channel channel;
  std::uint64_t tasks;
  unsigned words;
  bool blocking, publishes;
  int* failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    std::uint64_t word[5] = {1, 2, 3, 4, 5}, ticket = 0, value = 0;
    int wrong = 0;
    for (std::uint64_t i = 1; i <= tasks; ++i) {
      std::uint64_t* const asks = blocking ? &ticket : nullptr;
      word[0] = i;
      wrong |= publishes ? MPIX_Dev_post(channel, team.block, blocking ? question : event, word, words, asks)
                         : MPIX_Dev_post_event(channel, team.block, blocking ? question : event, word, words, asks);
      if (blocking) wrong |= MPIX_Dev_reply_wait(channel, ticket, &value);
    }
    if (wrong) *failed = wrong;
  }
};

struct Answers {
  MPIX_Dev_channel channel;
  std::uint64_t numbers;
  int* failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    int wrong = 0;
    for (std::uint64_t n = 1; n <= numbers && !wrong; ++n) {
      wrong = MPIX_Dev_flag_set(channel, team.block, n);
      if (!wrong) wrong = MPIX_Dev_flag_wait(channel, team.block, n);
    }
    if (wrong) *failed = wrong;
  }
};

/// By hand, with the order that flags give.
struct BareAnswers {
  std::uint64_t *up, *down;
  std::uint64_t numbers;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    for (std::uint64_t n = 1; n <= numbers; ++n) {
      mpix::store_release(up, n);
      while (mpix::load_acquire(down) < n) bare::wait_a_little();
    }
  }
};

void tasks(int blocks) {
  const auto count = static_cast<std::size_t>(blocks);
  bare::Words words{};
  words.ring = static_cast<mpix::Line*>(support::allocate_pinned(count * bare::depth * sizeof(mpix::Line)));
  words.back = static_cast<std::uint64_t*>(support::allocate_pinned(count * 128));
  const bool gpu = support::ranks_are_blocks;
  for (const bool blocking : {false, true}) {
    const std::uint64_t each = gpu ? (blocking ? 4000 : 40000) : (blocking ? 2000 : 20000) / count;
    const std::string name = (blocking ? "blocking, " : "pipelined, ") + std::to_string(blocks) + " blocks";
    std::vector<std::function<double()>> ways;
    const auto by_hand = [&](bool remembers) {
      return [&, remembers] {
        std::memset(static_cast<void*>(words.ring), 0, count * bare::depth * sizeof(mpix::Line));
        std::memset(words.back, 0, count * 128);
        std::vector<std::uint64_t> next(count, 1);
        return timed(bare::Post{words, each, blocking, remembers}, blocks,
                     [&] { bare::serve(words, static_cast<std::uint32_t>(blocks), each, next.data()); });
      };
    };
    ways.emplace_back(by_hand(false));
    struct Kind {
      const char *tasks, *service, *layout;
      unsigned words;
      bool publishes;
    };
    const std::vector<Kind> kinds = {{"lanes", "own", "padded", 0, false},    {"lanes", "own", "dense", 0, false},
                                     {"lanes", "caller", "padded", 0, false}, {"lanes", "own", "padded", 1, false},
                                     {"lanes", "own", "padded", 5, false},    {"lanes", "own", "padded", 5, true},
                                     {"queue", "own", "padded", 0, false},    {"queue", "own", "padded", 5, true}};
    for (const Kind& kind : kinds)
      ways.emplace_back([&, kind] {
        Channel channel(blocks, 0,
                        {{"mpix_tasks", kind.tasks},
                         {"mpix_service", kind.service},
                         {"mpix_layout", kind.layout},
                         {"mpix_depth", kind.tasks[0] == 'q' && blocks > 8 ? "4096" : "64"}});
        CHECK_MPI(MPIX_Channel_set_handler(channel, event, nothing, nullptr));
        CHECK_MPI(MPIX_Channel_set_handler(channel, question, answer, nullptr));
        CHECK_MPI(MPIX_Channel_arm(channel));
        const bool serves = kind.service[0] == 'c';
        handled = 0;
        const double time =
            timed(Post{channel.device(), each, kind.words, blocking, kind.publishes, failed_word}, blocks, [&] {
              if (!serves) return;
              while (handled < each * count) CHECK_MPI(MPIX_Channel_serve(channel, nullptr));
            });
        CHECK_MPI(MPIX_Channel_disarm(channel));
        check_failed();
        return time;
      });
    if (!blocking) ways.emplace_back(by_hand(true));
    const std::vector<double> times = in_turns(ways);
    const double all = static_cast<double>(each) * blocks;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const Kind& kind = kinds[i];
      const std::string which = name + ": " + kind.tasks + ", " + kind.service + ", " + kind.layout + ", " +
                                std::to_string(kind.words) + " words" + (kind.publishes ? ", fence" : "");
      row(which, all / times[i + 1], "M/s", all / times[0]);
      if (blocking && blocks == 1)
        row(which + ", a round trip", times[i + 1] / static_cast<double>(each), "us",
            times[0] / static_cast<double>(each));
    }
    if (!blocking)
      row(name + ": by hand, with looks for room where it needs some", all / times.back(), "M/s", all / times[0]);
  }
  support::release_pinned(words.ring);
  support::release_pinned(words.back);
}

void posts() {
  const std::uint64_t times = 4000;
  auto* const word = static_cast<std::uint64_t*>(support::allocate_pinned(128));
  const auto posted = [&](bool publishes) {
    return std::function<double()>([publishes] {
      Channel channel(1, 0, {{"mpix_depth", "4096"}, {"mpix_service", "own"}});
      CHECK_MPI(MPIX_Channel_set_handler(channel, event, nothing, nullptr));
      CHECK_MPI(MPIX_Channel_arm(channel));
      const double time = timed(Post{channel.device(), times, 0, false, publishes, failed_word}, 1);
      CHECK_MPI(MPIX_Channel_disarm(channel));
      check_failed();
      return time / static_cast<double>(times);
    });
  };
  const auto bare_time = [&](bool fences) {
    return std::function<double()>([word, fences] {
      return timed(bare::Fences{word, times, fences}, 1) / static_cast<double>(times);
    });
  };
  const std::vector<double> all = in_turns({posted(true), posted(false), bare_time(true), bare_time(false)});
  row("a post with a fence", all[0], "us", all[2]);
  row("an event", all[1], "us", all[3]);
  row("a store without a fence", all[3], "us");
  support::release_pinned(word);
}

void flags() {
  const std::uint64_t numbers = support::ranks_are_blocks ? 4000 : 2000;
  auto* const words = static_cast<std::uint64_t*>(support::allocate_pinned(512));
  const auto by_hand = [&] {
    std::memset(words, 0, 512);
    return timed(BareAnswers{words, words + 32, numbers}, 1, [&] {
      for (std::uint64_t n = 1; n <= numbers; ++n) {
        while (mpix::load_acquire(words) < n) bare::wait_a_little();
        mpix::store_release(words + 32, n);
      }
    });
  };
  const auto by_flags = [&](bool waits, const char* place) {
    return std::function<double()>([&, waits, place] {
      Channel fresh(0, 1, {{"mpix_words", place}});
      const double time = timed(Answers{fresh.device(), numbers, failed_word}, 1, [&] {
        for (unsigned long long n = 1; n <= numbers; ++n) {
          if (waits) {
            CHECK_MPI(MPIX_Channel_flag_wait(fresh, 0, n));
          } else {
            for (unsigned long long value = 0; value < n;) CHECK_MPI(MPIX_Channel_flag_get(fresh, 0, &value));
          }
          CHECK_MPI(MPIX_Channel_flag_set(fresh, 0, n));
        }
      });
      check_failed();
      return time;
    });
  };
  const std::vector<double> all =
      in_turns({by_hand, by_flags(true, "host"), by_flags(false, "host"), by_flags(false, "device")});
  row("flags, a round trip: wait", all[1] / static_cast<double>(numbers), "us", all[0] / static_cast<double>(numbers));
  row("flags, a round trip: get", all[2] / static_cast<double>(numbers), "us", all[0] / static_cast<double>(numbers));
  row("flags, a round trip: get, words of the device", all[3] / static_cast<double>(numbers), "us",
      all[0] / static_cast<double>(numbers));
  support::release_pinned(words);
}

/// Table 1 of Elis et al. 2024.
void reads_and_writes() {
  const std::uint64_t times = support::ranks_are_blocks ? 20000 : 2000000;
  auto* const words = static_cast<std::uint64_t*>(support::allocate_pinned(512));
  double cpu = 0;
  const auto kernel = [&] {
    std::memset(words, 0, 512);
    timed(bare::ReadsAndWrites{words, words + 16, words + 32, words + 48, times}, 1, [&] {
      while (mpix::load_acquire(words + 32) == 0) bare::wait_a_little();
      const auto begin = Clock::now();
      std::uint64_t pairs = 0;
      do {
        for (int i = 0; i < 64; ++i) mpix::store_release(words, ++pairs + (mpix::load_acquire(words + 16) & 1));
      } while (mpix::load_acquire(words + 32) != 2);
      cpu = since(begin) * 1e3 / static_cast<double>(pairs);
    });
    return static_cast<double>(words[48]) / static_cast<double>(times);
  };
  const std::vector<double> all = in_turns({kernel, [&] { return cpu; }});
  row("a read and a write, the kernel (paper 236, 29184, 27)", all[0], "ns");
  row("a read and a write, the CPU (paper 134, 311, 1760)", all[1], "ns");
  support::release_pinned(words);
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void idle(std::chrono::milliseconds watched) {
  for (const int lanes : {1, 132})
    for (const bool armed : {false, true}) {
      Channel channel(lanes, lanes, {{"mpix_service", "own"}});
      if (armed) CHECK_MPI(MPIX_Channel_arm(channel));
      std::this_thread::sleep_for(watched / 10);
      const double before = cpu_seconds();
      const auto begin = Clock::now();
      std::this_thread::sleep_for(watched);
      const double share = (cpu_seconds() - before) / (since(begin) * 1e-6);
      row(std::to_string(lanes) + " lanes, " + (armed ? "armed" : "not armed") + ", idle: share of a core", share * 100,
          "%", 0);
      if (armed) CHECK_MPI(MPIX_Channel_disarm(channel));
    }
}

/// In each process with another seed. The status of the program.
int soaked(int seconds, int seed, int rank) {
  const auto by_clock = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() / 1000);
  const std::uint64_t own =
      (seed > 0 ? static_cast<std::uint64_t>(seed) : by_clock % INT_MAX) + static_cast<unsigned>(rank);
  int well = soak::run(seconds, own) ? 1 : 0;
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Finalize());
  return well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  support::choose_gpu(benchmark::process());
  const char* const preset = support::ranks_are_blocks ? "1,8,32,132" : "1,8";
  int idle_ms = 2000, soak_s = 0, seed = 0;
  std::vector<int> blocks;
  (void)benchmark::read_numbers(preset, 1, 1 << 20, blocks);
  benchmark::CommandLine line("notify", "What channels cost, beside the same loops by hand.\n");
  line.value(
          "blocks", "LIST", preset, "a list of numbers from 1 on",
          [&](const std::string& text) { return benchmark::read_numbers(text, 1, 1 << 20, blocks); }, "of a kernel")
      .number("runs", runs, 1, benchmark::CommandLine::large, "of which the median is shown")
      .number("idle", idle_ms, 1, benchmark::CommandLine::large, "milliseconds for which an idle channel is watched")
      .number("soak", soak_s, 0, benchmark::CommandLine::large,
              "seconds for which all that channels offer is checked, at random, in place of what is measured; 0: not")
      .number("seed", seed, 0, INT_MAX, "of the soak; 0: by the clock")
      .flag("csv", csv, "comma-separated values");
  line.read(argc, argv);
  if (provided < MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "notify needs MPI_THREAD_MULTIPLE\n");
    return 2;
  }
  failed_word = static_cast<int*>(support::allocate_on_device(sizeof(int)));
  const int rank = benchmark::process(), ranks = benchmark::processes();
  if (ranks > 2) {
    if (rank == 0) std::fprintf(stderr, "notify is for one process or two\n");
    CHECK_MPI(MPI_Finalize());
    return 2;
  }
  if (soak_s > 0) return soaked(soak_s, seed, rank);
  if (rank == 0 && csv) std::printf("what,value,unit,by hand\n");
  if (ranks == 2) beside_messages(rank);
  if (rank == 0) {
    for (const int count : blocks) tasks(count);
    posts();
    flags();
    spreads();
    one_way();
    reads_and_writes();
    idle(std::chrono::milliseconds(idle_ms));
    if (support::ranks_are_blocks) beside_kernels();
  }
  leave_together();
  support::release_on_device(failed_word);
  CHECK_MPI(MPI_Finalize());
  return 0;
}
