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
//   graphs                                likewise, each of the two kernels a captured graph; on GPUs
//   kernel a message                      a launch to pack and one to unpack each, and an event
//   {queue, lanes}, {pinned, copied}      Vanecek's task queues on channels: one kernel an exchange, a block a message;
//                                         all blocks share a queue or have a lane each; they pack into memory of the
//                                         host, or in the device's and the CPU starts a copy
//   engine                                MPIX_Halo, a block a message (stream) or several for a large one (stacked)
//
// A figure is the time of an exchange, from data in memory of the device to data there: the median of all runs, in
// turns; every word is checked after each run. The ratio is to the best baseline with the same sends, in brackets what
// the papers have. Chained: of what the CPU's loop found, how much was there at its next look; the longest chain
// of those in an exchange.
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "baselines.h"
#include "engine.h"
#include "messages.h"
#include "options.h"
#include "report.h"
#include "sizes.h"
#include "task_queue.h"

namespace {

using namespace halo;

int rank = 0, ranks = 1;

Ways all_ways(const Messages& messages, const Size& size, int threads) {
  Ways ways;
  add_baselines(messages, ways);
  add_graphs(messages, ways);
  add_kernels_per_message(messages, threads, ways);
  add_task_queues(messages, size, threads, ways);
  add_engine(messages, size, ways);
  return ways;
}

/// Of each way, in turns, after one turn that does not count.
std::vector<std::vector<double>> measured(Messages& messages, const Ways& ways, int runs, int iterations) {
  std::vector<std::vector<double>> all(ways.size());
  for (int turn = 0; turn <= runs; ++turn)
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const Way& way = ways[w];
      messages.spoil();
      if (turn == 1 && way.events) way.events->forget();
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const auto begin = Clock::now();
      for (int i = 0; i < iterations; i += way.at_once) way.exchange(nullptr);
      const double time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / iterations;
      messages.check(way.name);
      if (turn > 0) all[w].push_back(time);
    }
  return all;
}

void run(const Size& size, const Options& options) {
  Messages messages(size, rank);
  const Ways ways = all_ways(messages, size, options.threads);
  const auto times = measured(messages, ways, options.runs, options.iterations);
  if (rank == 0) print_rows(size, ways, times, options.csv);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  Options options;
  if (!read_options(argc, argv, options)) {
    if (rank == 0) usage(stderr);
    MPI_Finalize();
    return 2;
  }
  if (ranks % 2 != 0 || provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::fprintf(stderr, "halo needs an even number of ranks, and MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 2;
  }
  support::choose_gpu(rank);
  if (rank == 0) print_head(options.csv);
  for (const Size& size : sizes())
    if (options.wants(size.name)) run(size, options);
  CHECK_MPI(MPI_Finalize());
  return 0;
}
