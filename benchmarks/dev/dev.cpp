// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What device-side RMA costs; ranks are threads or, compiled as CUDA or HIP, blocks.
//
//   mpiexec -n N dev [pingpong] [barrier] [fanin] [rate] [match] [both] [halo] [--inline=BYTES]     (none named: all)
//
// pingpong  between the first rank and the last: a notified put and the wait for it, one way, with wildcards; --inline:
//           info mpix_dev_inline
// barrier   of all ranks
// fanin     all ranks but one notify that one, which waits for any: time of each
// rate      ranks in pairs put 8 bytes, and wait for as many: notifications a second of all
// match     a rank waits for notifications that are there, with wildcards but for the tag: the first of all, or with
//           others in front that it does not want
// both      all ranks in pairs put 256 KiB to each other at once: bytes a second of each process, one way
// halo      ranks in a ring exchange with both neighbours, 4 in each process or one on each multiprocessor; and the
//           processes alone, by MPI_Isend, MPI_Irecv and MPI_Waitall
//
// A figure is the median of several launches; of each the time of a launch with no steps is taken off.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "support/domain.h"

namespace {

int process = 0, processes = 1;
std::string inline_bytes;  ///< empty: the preset

/// The first rank and the last in turns.
struct PingPong {
  MPIX_Dev_win window;
  char* base;
  std::size_t bytes;
  int steps;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), last = MPIX_Dev_size(&c, MPIX_DEV_WORLD) - 1;
    if (me != 0 && me != last) return;
    const int other = last - me;
    const char* const from = base + (static_cast<std::size_t>(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE)) * 2 + 1) * bytes;
    for (int i = 0; i < steps; ++i) {
      if (me == 0) (void)MPIX_Dev_put_notify(&c, window, other, 0, bytes, from, i & 1023);
      if (MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1) != MPI_SUCCESS) return;
      if (me != 0) (void)MPIX_Dev_put_notify(&c, window, other, 0, bytes, from, i & 1023);
    }
  }
};

struct Barrier {
  int steps;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    for (int i = 0; i < steps; ++i)
      if (MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) != MPI_SUCCESS) return;
  }
};

struct FanIn {
  MPIX_Dev_win window;
  int steps;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int others = MPIX_Dev_size(&c, MPIX_DEV_WORLD) - 1;
    for (int i = 0; i < steps; ++i) {
      if (c.rank != 0) {
        (void)MPIX_Dev_notify(&c, window, 0, 1);
        continue;
      }
      for (int from = 0; from < others; ++from)
        if (MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, 1, 1) != MPI_SUCCESS) return;
    }
  }
};

/// Half of the ranks away; negative: the last of an odd number has none.
MPIX_DEV_FN int partner_of(const MPIX_Dev_ctx& c) {
  const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), half = MPIX_Dev_size(&c, MPIX_DEV_WORLD) / 2;
  return me >= 2 * half ? -1 : me < half ? me + half : me - half;
}

/// Each rank and its partner, to each other.
struct Rate {
  static constexpr int ahead = 8;
  MPIX_Dev_win window;
  char* base;
  int steps;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int other = partner_of(c);
    if (other < 0) return;
    const char* const from = base + static_cast<std::size_t>(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE)) * 16 + 8;
    for (int i = 0; i < steps; ++i) {
      (void)MPIX_Dev_put_notify(&c, window, other, 0, 8, from, 1);
      if (i >= ahead && MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1) != MPI_SUCCESS)
        return;
    }
    (void)MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, steps < ahead ? steps : ahead);
  }
};

/// The first rank alone: how long it waits for what it has told itself before.
struct Match {
  static constexpr int batch = 8, wanted = 1, unwanted = 2;
  MPIX_Dev_win window;
  int in_front, steps;
  unsigned long long* nanoseconds;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    if (c.rank != 0) return;
    for (int i = 0; i < in_front; ++i) (void)MPIX_Dev_notify(&c, window, 0, unwanted);
    // All of them are set aside here.
    int found = 0;
    (void)MPIX_Dev_test(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, wanted, 1, &found);
    unsigned long long all = 0;
    for (int i = 0; i < steps; ++i) {
      for (int k = 0; k < batch; ++k) (void)MPIX_Dev_notify(&c, window, 0, wanted);
      const unsigned long long begin = MPIX_Dev_clock();
      for (int k = 0; k < batch; ++k)
        if (MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, wanted, 1) != MPI_SUCCESS) return;
      all += MPIX_Dev_clock() - begin;
    }
    if (in_front > 0) (void)MPIX_Dev_wait(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, unwanted, in_front);
    *nanoseconds = all;
  }
};

/// As Rate, with much.
struct Both {
  static constexpr std::size_t bytes = 256 << 10;
  MPIX_Dev_win window;
  char* base;
  int steps;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int other = partner_of(c);
    if (other < 0) return;
    const char* const from = base + (static_cast<std::size_t>(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE)) * 2 + 1) * bytes;
    for (int i = 0; i < steps; ++i) {
      (void)MPIX_Dev_put_notify(&c, window, other, 0, bytes, from, 1);
      if (MPIX_Dev_wait(&c, window, other, 1, 1) != MPI_SUCCESS) return;
    }
  }
};

/// With both neighbours in a ring. Each may be a step ahead: two places in turns.
struct Halo {
  MPIX_Dev_win window;
  char* base;
  std::size_t bytes;
  int steps;
  static constexpr std::size_t places = 5;  ///< from both sides, twice; and what is put
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const int me = MPIX_Dev_rank(&c, MPIX_DEV_WORLD), n = MPIX_Dev_size(&c, MPIX_DEV_WORLD);
    const char* const from =
        base + (static_cast<std::size_t>(MPIX_Dev_rank(&c, MPIX_DEV_DEVICE)) * places + places - 1) * bytes;
    for (int i = 0; i < steps; ++i) {
      const std::size_t place = 2 * static_cast<std::size_t>(i % 2);
      (void)MPIX_Dev_put_notify(&c, window, (me + n - 1) % n, place * bytes, bytes, from, i % 2);
      (void)MPIX_Dev_put_notify(&c, window, (me + 1) % n, (place + 1) * bytes, bytes, from, i % 2);
      if (MPIX_Dev_wait(&c, window, MPIX_DEV_ANY_SOURCE, i % 2, 2) != MPI_SUCCESS) return;
    }
  }
};

template <int most_threads, int blocks, class Kernel>
double seconds_of(MPIX_Dev dev, const Kernel& kernel, int threads) {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const auto begin = std::chrono::steady_clock::now();
  CHECK_MPI((support::launch<most_threads, blocks>(dev, kernel, threads)));
  support::synchronize();
  double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return all;
}

/// Of one step, in microseconds.
template <int most_threads = 512, int blocks = 1, class Kernel>
double step_time(MPIX_Dev dev, Kernel kernel, int steps, int threads) {
  std::vector<double> times;
  (void)seconds_of<most_threads, blocks>(dev, kernel, threads);
  for (int run = 0; run < 7; ++run) {
    kernel.steps = 0;
    const double empty = seconds_of<most_threads, blocks>(dev, kernel, threads);
    kernel.steps = steps;
    times.push_back((seconds_of<most_threads, blocks>(dev, kernel, threads) - empty) / steps * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

/// The same between two processes by MPI_Send and MPI_Recv, in memory of the host; one way, in microseconds.
double mpi_ping_pong(std::size_t bytes, int steps) {
  const int last = processes - 1;
  if (process != 0 && process != last) return 0;
  const int other = last - process, count = static_cast<int>(bytes);
  std::vector<char> data(bytes + 1);
  std::vector<double> times;
  for (int run = 0; run < 8; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      if (process == 0) CHECK_MPI(MPI_Send(data.data(), count, MPI_BYTE, other, 0, MPI_COMM_WORLD));
      CHECK_MPI(MPI_Recv(data.data(), count, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      if (process != 0) CHECK_MPI(MPI_Send(data.data(), count, MPI_BYTE, other, 0, MPI_COMM_WORLD));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) times.push_back(seconds / steps / 2 * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

void ping_pong() {
  const bool alone = processes == 1;
  const std::size_t most = 4 << 20;
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  if (!inline_bytes.empty()) CHECK_MPI(MPI_Info_set(info, "mpix_dev_inline", inline_bytes.c_str()));
  support::Domain domain(MPI_COMM_WORLD, alone ? 2 : process == 0 || process == processes - 1 ? 1 : 0, info);
  CHECK_MPI(MPI_Info_free(&info));
  PingPong kernel{};
  kernel.base = domain.allocate(2 * most * (alone ? 2 : 1));
  if (process == 0)
    std::printf("ping-pong, one way [us]; MPI: MPI_Send and MPI_Recv in memory of the host\n%10s %10s %12s%s\n",
                "bytes", "time", "GB/s", alone ? "" : "        MPI");
  for (const std::size_t bytes : {0, 8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576, 4194304}) {
    kernel.bytes = bytes;
    kernel.window = domain.window_over(kernel.base, 2 * most);
    const int threads = static_cast<int>(std::clamp<std::size_t>(bytes / 8, 32, 512));
    const int steps = support::ranks_are_blocks ? (bytes > 65536 ? 200 : 4000) : (bytes > 65536 ? 20 : 1000);
    const double time = step_time(domain, kernel, steps, threads) / 2;
    const double mpi = alone ? 0 : mpi_ping_pong(bytes, bytes > 65536 ? 20 : 1000);
    if (process == 0) {
      std::printf("%10zu %10.2f %12.3f", bytes, time, static_cast<double>(bytes) / time / 1e3);
      if (!alone) std::printf(" %10.2f", mpi);
      std::printf("\n");
    }
    CHECK_MPI(MPIX_Dev_win_free(domain, &kernel.window));
  }
  domain.check();
}

/// Ranks for each process: on a GPU one for each multiprocessor, shared evenly.
int ranks_here(int each_multiprocessor) {
  if (!support::ranks_are_blocks) return 2;
  return support::multiprocessors() * each_multiprocessor / support::processes_of_the_gpu();
}

void barriers() {
  if (process == 0) std::printf("barrier [us]\n%10s %10s\n", "ranks", "time");
  for (const int each : {1, 8}) {
    const int here = ranks_here(each);
    support::Domain domain(MPI_COMM_WORLD, here);
    const double time = step_time<128, 8>(domain, Barrier{}, support::ranks_are_blocks ? 1000 : 200, 128);
    if (process == 0) std::printf("%10d %10.2f\n", here * processes, time);
    domain.check();
  }
}

void fan_in() {
  const int here = ranks_here(1);
  support::Domain domain(MPI_COMM_WORLD, here);
  FanIn kernel{};
  kernel.window = domain.window_over(domain.allocate(static_cast<std::size_t>(here) * 8), 8);
  const int steps = support::ranks_are_blocks ? 200 : 50;
  const double time = step_time(domain, kernel, steps, 64);
  const int others = here * processes - 1;
  if (process == 0 && others > 0)
    std::printf("fan-in of %d, any source [us]: %.2f, each %.3f\n", others, time, time / others);
  domain.check();
}

void rate() {
  if (process == 0) std::printf("notified puts of 8 bytes, in pairs\n%10s %14s\n", "ranks", "million/s");
  for (const int each : {1, 8}) {
    const int here = ranks_here(each);
    support::Domain domain(MPI_COMM_WORLD, here);
    Rate kernel{};
    kernel.base = domain.allocate(static_cast<std::size_t>(here) * 16);
    kernel.window = domain.window_over(kernel.base, 16);
    const double time = step_time<128, 8>(domain, kernel, support::ranks_are_blocks ? 1000 : 500, 64);
    const int all = here * processes / 2 * 2;
    if (process == 0) std::printf("%10d %14.2f\n", all, all / time);
    domain.check();
  }
}

void matching() {
  support::Domain domain(MPI_COMM_WORLD, 1);
  Match kernel{};
  char* const memory = domain.allocate(64);
  kernel.window = domain.window_over(memory, 8);
  kernel.nanoseconds = reinterpret_cast<unsigned long long*>(memory + 8);
  kernel.steps = support::ranks_are_blocks ? 2000 : 1000;
  if (process == 0) std::printf("a wait for what is there, with others in front [us]\n%10s %10s\n", "in front", "time");
  for (const int in_front : {0, 32, 256}) {
    kernel.in_front = in_front;
    std::vector<double> times;
    for (int run = 0; run < 5; ++run) {
      (void)seconds_of<512, 1>(domain, kernel, 32);
      unsigned long long all = 0;
      if (process == 0) support::to_host(&all, kernel.nanoseconds, sizeof all);
      times.push_back(static_cast<double>(all) * 1e-3 / (kernel.steps * Match::batch));
    }
    std::nth_element(times.begin(), times.begin() + 2, times.end());
    if (process == 0) std::printf("%10d %10.3f\n", in_front, times[2]);
  }
  domain.check();
}

void both_ways() {
  const int here = ranks_here(1);
  support::Domain domain(MPI_COMM_WORLD, here);
  Both kernel{};
  kernel.base = domain.allocate(static_cast<std::size_t>(here) * 2 * Both::bytes);
  kernel.window = domain.window_over(kernel.base, 2 * Both::bytes);
  const double time = step_time(domain, kernel, support::ranks_are_blocks ? 100 : 20, 512);
  if (process == 0)
    std::printf("both ways at once, %d ranks of a process [GB/s of each, one way]: %.1f\n", here,
                static_cast<double>(here) * Both::bytes / time / 1e3);
  domain.check();
}

/// Of an exchange with both neighbours, in microseconds.
double mpi_halo(std::size_t bytes, int steps) {
  const int left = (process + processes - 1) % processes, right = (process + 1) % processes;
  const int count = static_cast<int>(bytes);
  std::vector<char> from(bytes), to(2 * bytes);
  std::vector<double> times;
  for (int run = 0; run < 6; ++run) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      MPI_Request all[4];
      CHECK_MPI(MPI_Irecv(to.data(), count, MPI_BYTE, left, 0, MPI_COMM_WORLD, &all[0]));
      CHECK_MPI(MPI_Irecv(to.data() + bytes, count, MPI_BYTE, right, 1, MPI_COMM_WORLD, &all[1]));
      CHECK_MPI(MPI_Isend(from.data(), count, MPI_BYTE, right, 0, MPI_COMM_WORLD, &all[2]));
      CHECK_MPI(MPI_Isend(from.data(), count, MPI_BYTE, left, 1, MPI_COMM_WORLD, &all[3]));
      CHECK_MPI(MPI_Waitall(4, all, MPI_STATUSES_IGNORE));
    }
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), most = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    if (run > 0) times.push_back(most / steps * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

void halo() {
  const int here = support::ranks_are_blocks ? ranks_here(1) : 4;
  const std::size_t most = 4096;
  support::Domain domain(MPI_COMM_WORLD, here);
  Halo kernel{};
  kernel.base = domain.allocate(static_cast<std::size_t>(here) * Halo::places * most);
  if (process == 0)
    std::printf("exchange with both neighbours in a ring [us]: %d ranks; MPI: %d processes\n%10s %10s %10s %10s\n",
                here * processes, processes, "bytes", "time", "MPI", "ratio");
  for (const std::size_t bytes : {32, 1024, 4096}) {
    kernel.bytes = bytes;
    kernel.window = domain.window_over(kernel.base, Halo::places * bytes);
    const double time = step_time<128, 8>(domain, kernel, support::ranks_are_blocks ? 1000 : 200, 64);
    const double mpi = mpi_halo(bytes, processes > 4 ? 30 : 1000);
    if (process == 0) std::printf("%10zu %10.2f %10.2f %10.3f\n", bytes, time, mpi, time / mpi);
    CHECK_MPI(MPIX_Dev_win_free(domain, &kernel.window));
  }
  domain.check();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  std::vector<std::string> names;
  benchmark::CommandLine line("dev",
                              "What device-side RMA costs. Words choose what is measured: pingpong, barrier, fanin, "
                              "rate, match, both, halo; none: all.\n");
  line.value(
          "inline", "N", "as libmpix has it", "a whole number from 0 on",
          [](const std::string& text) {
            int bytes = 0;
            inline_bytes = text;
            return benchmark::read_number(text, 0, benchmark::CommandLine::large, bytes);
          },
          "bytes of the ping-pong: info mpix_dev_inline")
      .words(names, {"pingpong", "barrier", "fanin", "rate", "match", "both", "halo"});
  line.read(argc, argv);
  support::choose_gpu(process);
  const auto wanted = [&](const char* name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  if (wanted("pingpong")) ping_pong();
  if (wanted("barrier")) barriers();
  if (wanted("fanin")) fan_in();
  if (wanted("rate")) rate();
  if (wanted("match")) matching();
  if (wanted("both")) both_ways();
  if (wanted("halo")) halo();
  CHECK_MPI(MPI_Finalize());
  return 0;
}
