// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo engine beside what programs do without it: launch a kernel that packs, synchronize, send, receive, launch
// one that unpacks, synchronize; and beside the task queues of a thesis, on channels. Blocks are those of kernels
// (compiled as CUDA or HIP), or threads.
//
//   mpiexec -n 2 halo [--sizes=NAME,NAME,…] [--runs=N] [--iterations=N] [--threads=N] [--csv]
//   mpiexec -n 2 halo --model | --timeline=FILE
//
// Sizes, of each pair of ranks (2k and 2k + 1):
//   w9 w27 wsmall wlarge      Vanecek 2020: 9, 27 and 4 messages; wlarge is w27 with 10 times the bytes
//   elis200 elis400 elis800   Elis et al. 2024: 26 messages of a cube's faces, edges and corners
//
// Rows:
//   {Isend, Send}, {Waitall, Testany}     baselines, their buffers in memory of the host that kernels reach
//   GPU-aware MPI                         the same with buffers in memory of the device, with --mpi=device
//   graphs                                likewise, each of the two kernels a captured graph; on GPUs
//   kernel a message                      a launch to pack and one to unpack each, and an event
//   {queue, lanes}, {pinned, copied}      Vanecek's task queues on channels: one kernel an exchange, a block a message;
//                                         all blocks share a queue or have a lane each; they pack into memory of the
//                                         host, or in the device's and the CPU starts a copy
//   engine                                MPIX_Halo, a block a message (stream), several for a large one (stacked), or
//                                         all, which then meet at a barrier of the grid before it is sent (barrier);
//                                         by messages of MPI, or by memory, as it is where the program does not say;
//                                         a launch to pack and one to unpack (launches), and those for each message
//                                         (blocks); its buffers copied, and with --mpi=device in memory of the device;
//                                         and 100 exchanges in a row: of a launch each, of one launch that the
//                                         program's stream lets go on, of a kernel of the program, and captured
//   epochs                                puts of epochs on a stream, and NCCL, captured and not: nothing is packed;
//   each
//                                         waited for, or 10 at once, of NCCL also 100
//
// A figure is the time of an exchange, from data in memory of the device to data there: the median of all runs, in
// turns; every word is checked after each run, and before them in exchanges of data that change. Slowest: the longest
// of all exchanges, in multiples of their median; of many in a row by the clock of kernels, in calls behind the others.
// The ratio is to the best baseline with the same sends, in brackets what the papers have. Overlap: of the time in
// which blocks of rank 0 pack, the share with MPI under way, that is, behind the begin of the first send; of exchanges
// that were traced behind the others. Chained: of what the CPU's loop found, how much was there at its next look; the
// longest chain of those in an exchange. Launches: of kernels and graphs, for an exchange. CPU: time of all threads of
// rank 0.
//
// --model: the lower bound of Elis et al. (model.h) with their constants and with those of this machine, beside what is
// measured. --timeline: a trace of rank 0 (timeline.h).
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "baselines.h"
#include "direct.h"
#include "engine.h"
#include "messages.h"
#include "model.h"
#include "options.h"
#include "report.h"
#include "sizes.h"
#include "task_queue.h"
#include "timeline.h"

namespace {

using namespace halo;

int rank = 0, ranks = 1;

Ways wanted_ways(Messages& messages, const Size& size, const Options& options,
                 const std::shared_ptr<nccl::World>& world) {
  Ways ways;
  if (options.wants_way("baselines")) {
    add_baselines(messages, Buffers::pinned, ways);
    if (!options.mpi_is_staged) add_baselines(messages, Buffers::device, ways);
  }
  if (options.wants_way("graphs")) add_graphs(messages, ways);
  if (options.wants_way("kernels")) add_kernels_per_message(messages, options.threads, ways);
  if (options.wants_way("queues")) add_task_queues(messages, size, options.threads, ways);
  if (options.wants_way("engine")) add_engine(messages, size, options.gather, ways);
  if (options.wants_way("forms")) add_other_forms(messages, options.mpi_is_staged, options.gather, ways);
  if (options.wants_way("memory")) add_engine_by_memory(messages, size, ways);
  if (options.wants_way("chunks")) add_chunks(messages, options.gather, ways);
  if (options.wants_way("many"))
    for (const auto route : {Engine::Route::mpi, Engine::Route::memory})
      add_many(messages, route, options.gather, ways);
  if (options.wants_way("epochs")) add_epochs(messages, ways);
  if (options.wants_way("nccl")) add_nccl(messages, world, ways);
  // As many exchanges in a row beside each other.
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.at_once < b.at_once; });
  return ways;
}

/// Of all threads of the process.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double us_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

/// Measured are exchanges of the same data, where only the first has to bring something. Here the data are others
/// before each, and what the last of a call brought is checked; also of calls that were captured, which change nothing.
void check_each_exchange(Messages& messages, const Ways& ways) {
  for (const Way& way : ways)
    for (const bool in_between : {false, true}) {
      if (in_between && !way.exchange_changed) continue;
      for (int i = 0; i < (way.at_once > 1 ? 1 : 3); ++i) {
        messages.spoil();
        if (!in_between) messages.change();
        support::synchronize();
        CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
        in_between ? way.exchange_changed() : way.exchange(nullptr);
        messages.check(way.name);
      }
    }
}

/// Of each way, in turns, after one turn that does not count.
std::vector<Times> measured(Messages& messages, const Ways& ways, int runs, int iterations) {
  check_each_exchange(messages, ways);
  std::vector<Times> all(ways.size());
  for (int turn = 0; turn <= runs; ++turn)
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const Way& way = ways[w];
      messages.spoil();
      if (turn == 1 && way.events) way.events->forget();
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const double cpu = cpu_us();
      const auto begin = Clock::now();
      std::vector<double> each;  // of a call
      int exchanges = 0;
      auto last = begin;
      for (; exchanges < iterations; exchanges += way.at_once) {
        way.exchange(nullptr);
        const auto now = Clock::now();
        each.push_back(us_between(last, now));
        last = now;
      }
      const double time = us_between(begin, last);
      const double cpu_time = cpu_us() - cpu;
      messages.check(way.name);
      if (turn == 0) continue;
      if (way.at_once == 1) all[w].each.insert(all[w].each.end(), each.begin(), each.end());
      all[w].us.push_back(time / exchanges);
      all[w].cpu_us.push_back(cpu_time / exchanges);
    }
  return all;
}

/// What blocks and the CPU do at once, where both are traced.
void measure_overlap(Messages& messages, const Ways& ways, int runs, std::vector<Times>& times) {
  Clocks clocks;
  std::vector<std::vector<Shown>> all(ways.size());
  for (int turn = 0; turn < runs; ++turn)
    for (std::size_t w = 0; w < ways.size(); ++w)
      if (ways[w].traced != Way::Blocks::unseen) all[w].push_back(traced(messages, ways[w]));
  clocks.end();
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (const Shown& shown : all[w]) times[w].overlap.push_back(overlap(shown, clocks));
}

/// Where many are one call, the first of which does not count.
void measure_each(Messages& messages, const Ways& ways, int runs, std::vector<Times>& times) {
  for (int turn = 0; turn < runs; ++turn)
    for (std::size_t w = 0; w < ways.size(); ++w) {
      if (!ways[w].times_of_each) continue;
      messages.spoil();
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const std::vector<double> each = ways[w].times_of_each();
      messages.check(ways[w].name);
      times[w].each.insert(times[w].each.end(), each.begin(), each.end());
    }
}

void run(const Size& size, const Options& options, const std::shared_ptr<nccl::World>& world) {
  Messages messages(size, rank);
  const Ways ways = wanted_ways(messages, size, options, world);
  auto times = measured(messages, ways, options.runs, options.iterations);
  measure_each(messages, ways, options.runs, times);
  measure_overlap(messages, ways, options.runs, times);
  if (rank == 0) print_rows(size, ways, times, options.csv);
}

/// Of the cubes, as the paper has it, unless sizes are given.
int run_model(const Options& options) {
  const bool holds = print_paper_model(rank == 0);
  const Network network = measure_network(rank, 10 * options.runs);
  for (const Size& size : sizes()) {
    if (!options.wants(size.name) || (options.sizes.empty() && size.name[0] != 'e')) continue;
    Messages messages(size, rank);
    Ways ways;
    add_task_queues(messages, size, options.threads, ways);
    add_engine(messages, size, options.gather, ways);
    ways.erase(std::remove_if(ways.begin(), ways.end(), [](const Way& way) { return way.blocks; }), ways.end());
    const auto times = measured(messages, ways, options.runs, options.iterations);
    if (rank == 0) print_model(network, messages, size, options.threads, options.runs, ways, times);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  return holds ? 0 : 1;
}

/// The fastest of a kind, by rank 0.
const Way& best_of(const Ways& ways, Way::Kind kind, const std::vector<Times>& times) {
  int best = -1;
  for (std::size_t w = 0; w < ways.size(); ++w)
    if (ways[w].kind == kind && (best < 0 || median(times[w].us) < median(times[static_cast<std::size_t>(best)].us)))
      best = static_cast<int>(w);
  CHECK_MPI(MPI_Bcast(&best, 1, MPI_INT, 0, MPI_COMM_WORLD));
  return ways[static_cast<std::size_t>(best)];
}

int run_timeline(const Options& options) {
  for (const Size& size : sizes()) {
    if (!options.wants(size.name)) continue;
    Messages messages(size, rank);
    Ways ways;
    add_baselines(messages, Buffers::pinned, ways);
    add_task_queues(messages, size, options.threads, ways);
    const auto times = measured(messages, ways, options.runs, options.iterations);
    Clocks clocks;
    std::vector<Shown> shown;
    for (const Way::Kind kind : {Way::Kind::baseline, Way::Kind::task_queue})
      shown.push_back(traced(messages, best_of(ways, kind, times)));
    shown.push_back(traced(messages, traced_engine(messages, options.threads, options.gather)));
    clocks.end();
    if (rank != 0) return 0;
    if (!write_timeline(options.timeline, shown, clocks)) {
      std::perror(options.timeline.c_str());
      return 1;
    }
    std::printf("%s: %s; %s; and %s, in %s\n", size.name, shown[0].name.c_str(), shown[1].name.c_str(),
                shown[2].name.c_str(), options.timeline.c_str());
    std::printf("clocks of the CPU and the blocks: %.3f us apart at most, rate %.9f\n", clocks.error() * 1e-3,
                clocks.rate());
    return 0;
  }
  return 0;
}

int run_table(const Options& options) {
  std::string missing;
  const std::shared_ptr<nccl::World> world = nccl::World::make(options.nccl, missing);
  if (rank == 0 && world) std::fprintf(stderr, "NCCL: %s\n", world->about().c_str());
  if (rank == 0 && !world) std::fprintf(stderr, "without NCCL: %s\n", missing.c_str());
  if (rank == 0) print_head(options.csv);
  for (const Size& size : sizes())
    if (options.wants(size.name)) run(size, options, world);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  const Options options = read_options(argc, argv);
  if (ranks % 2 != 0 || provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::fprintf(stderr, "halo needs an even number of ranks, and MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 2;
  }
  support::choose_gpu(rank);
  const int result = options.model               ? run_model(options)
                     : !options.timeline.empty() ? run_timeline(options)
                                                 : run_table(options);
  CHECK_MPI(MPI_Finalize());
  return result;
}
