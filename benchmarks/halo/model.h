// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "messages.h"
#include "report.h"
#include "support/streams.h"
#include "trace.h"

/// The lower bound of Elis et al. 2024, where flags cost nothing: T = SP + K + LUP. SP is what packing one short
/// message takes, LUP unpacking one long one, K the way of one long message; the rest hides behind them.
namespace halo {

/// K of n bytes, after Choi et al. 2020, in seconds and bytes a second: alpha + f n / (Rcb + (f - 1) Rci), where f
/// processes of a node, on average, send to others. On a node f is 1 and Rcb 1 / beta.
struct Network {
  double alpha, rcb, rci, f;
  double time(double bytes) const { return alpha + f * bytes / (rcb + (f - 1) * rci); }
};

/// Their constants, Power9 and V100, 4 processes a node, 24 of 26 messages leave it, rendezvous: microseconds. False:
/// it does not give what it should.
inline bool print_paper_model(bool prints) {
  const Network network{1.06e-5, 1.79e10, 2.22e10, 24.0 / 26 * 4};
  struct Row {
    const char* size;
    double bytes, lup, told, rounding;
  };
  constexpr double sp = 1.75;
  bool holds = true;
  for (const Row& row : {Row{"elis200", 60000, 12.0, 27.2, 0.05}, Row{"elis400", 240000, 30.4, 54.2, 0.05},
                         Row{"elis800", 960000, 105, 163, 0.5}}) {
    const double k = network.time(row.bytes) * 1e6, t = sp + k + row.lup;
    const bool agrees = std::fabs(t - row.told) <= row.rounding;
    if (prints)
      std::printf("the paper's constants, %s: SP %.2f + K %.1f + LUP %.1f = T %.1f us, expected %g: %s\n", row.size, sp,
                  k, row.lup, t, row.told, agrees ? "as it should be" : "WRONG");
    holds &= agrees;
  }
  return holds;
}

/// Which node this rank is of, as the library sees it where MPIX_NODE_SIZE says so.
inline int node_of_this_rank(int rank) {
  const char* const ranks_a_node = std::getenv("MPIX_NODE_SIZE");
  if (ranks_a_node && std::atoi(ranks_a_node) > 0) return rank / std::atoi(ranks_a_node);
  MPI_Comm node = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  int first = rank;
  CHECK_MPI(MPI_Bcast(&first, 1, MPI_INT, 0, node));
  CHECK_MPI(MPI_Comm_free(&node));
  return first;
}

/// Pairs of ranks play ping-pong, the first alone or all at once.
class PingPong {
 public:
  PingPong(int rank, int rounds) : rank_(rank), rounds_(rounds) {
    memory_ = static_cast<char*>(support::allocate_pinned(sizes.back()));
  }
  ~PingPong() { support::release_pinned(memory_); }
  PingPong(const PingPong&) = delete;
  PingPong& operator=(const PingPong&) = delete;

  struct Line {
    double alpha, beta, off;  ///< seconds, seconds a byte, the largest relative difference from it
  };
  /// The line with the least relative differences, the same on all ranks.
  Line fit(bool all_pairs) {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    std::vector<double> times;
    for (const std::size_t bytes : sizes) {
      const double n = static_cast<double>(bytes), t = one_way(bytes, all_pairs), weight = 1 / (t * t);
      times.push_back(t);
      w += weight, x += weight * n, y += weight * t, xx += weight * n * n, xy += weight * n * t;
    }
    Line line{};
    line.beta = std::max((w * xy - x * y) / (w * xx - x * x), 1e-15);  // a machine that others use may have none
    line.alpha = (y - line.beta * x) / w;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double told = line.alpha + line.beta * static_cast<double>(sizes[i]);
      line.off = std::max(line.off, std::fabs(told / times[i] - 1));
    }
    return line;
  }

 private:
  /// Around the long messages of the cubes.
  inline static const std::vector<std::size_t> sizes = {32768, 65536, 131072, 262144, 524288, 1048576};

  /// Half the shortest round trip, as the model is a lower bound; the mean of all pairs'.
  double one_way(std::size_t bytes, bool all_pairs) {
    const bool plays = all_pairs || rank_ < 2;
    const int count = static_cast<int>(bytes), peer = rank_ ^ 1;
    std::vector<double> times;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = -2; plays && i < rounds_; ++i) {
      const auto begin = Clock::now();
      for (const bool sends : {rank_ % 2 == 0, rank_ % 2 != 0})
        if (sends)
          CHECK_MPI(MPI_Send(memory_, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD));
        else
          CHECK_MPI(MPI_Recv(memory_, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      if (i >= 0) times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / 2);
    }
    double sum[2] = {plays ? *std::min_element(times.begin(), times.end()) : 0, plays ? 1.0 : 0};
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return sum[0] / sum[1];
  }

  const int rank_, rounds_;
  char* memory_ = nullptr;
};

/// Collective. Rank 0 says what it found.
inline Network measure_network(int rank, int rounds) {
  const int node = node_of_this_rank(rank);
  int ranks = 1, peer_node = node;
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  CHECK_MPI(MPI_Sendrecv(&node, 1, MPI_INT, rank ^ 1, 0, &peer_node, 1, MPI_INT, rank ^ 1, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
  std::vector<int> nodes(static_cast<std::size_t>(ranks));
  CHECK_MPI(MPI_Allgather(&node, 1, MPI_INT, nodes.data(), 1, MPI_INT, MPI_COMM_WORLD));
  // What rank 0 sees is what all compute with.
  int off_node = node != peer_node ? static_cast<int>(std::count(nodes.begin(), nodes.end(), node)) : 0;
  CHECK_MPI(MPI_Bcast(&off_node, 1, MPI_INT, 0, MPI_COMM_WORLD));

  PingPong game(rank, rounds);
  const PingPong::Line alone = game.fit(false);
  Network network{alone.alpha, 1 / alone.beta, 0, 1};
  if (rank == 0)
    std::printf(
        "%s, ping-pong of MPI: alpha %.3g s, beta %.3g s/B (Rcb %.3g B/s); the points differ by %.0f %% at most\n",
        off_node ? "between nodes" : "on a node", alone.alpha, alone.beta, network.rcb, 100 * alone.off);
  if (off_node < 2) return network;
  const PingPong::Line together = game.fit(true);
  network.f = off_node;
  network.rci = (network.f / together.beta - network.rcb) / (network.f - 1);
  if (rank == 0)
    std::printf("the same with %d processes a node at once: %.3g s/B (Rci %.3g B/s); they differ by %.0f %% at most\n",
                off_node, together.beta, network.rci, 100 * together.off);
  return network;
}

/// One block copies a message; what it has packed is there for all at the second stamp.
struct TimedCopy {
  const Part* part;
  bool packs;
  std::uint64_t* stamps;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    stamp_here(team, stamps);
    copy_part(team, *part);
    MPIX_Dev_sync(team);
    if (packs && team.thread == 0) mpix::fence_stores();
    stamp_here(team, stamps + 1);
  }
};

/// Microseconds.
inline double time_of_copy(const Messages& messages, bool packs, int m, int threads, int runs) {
  std::vector<double> times;
  for (int i = 0; i < runs + 1; ++i) {
    const Part* const parts = packs ? messages.whole_pack() : messages.whole_unpack();
    support::launch_blocks(TimedCopy{parts + m, packs, messages.stamps()}, 1, threads);
    support::synchronize();
    if (i > 0) times.push_back(static_cast<double>(messages.stamps()[1] - messages.stamps()[0]) * 1e-3);
  }
  return median(times);
}

/// `exchange`: microseconds that each way took.
inline void print_model(const Network& network, const Messages& messages, const Size& size, int threads, int runs,
                        const Ways& ways, const std::vector<Times>& exchange) {
  int shortest = 0, longest = 0;
  for (int m = 1; m < messages.count(); ++m) {
    if (messages.words(m) < messages.words(shortest)) shortest = m;
    if (messages.words(m) > messages.words(longest)) longest = m;
  }
  const double sp = time_of_copy(messages, true, shortest, threads, runs);
  const double lup = time_of_copy(messages, false, longest, threads, runs);
  const double k = network.time(messages.bytes(longest)) * 1e6, t = sp + k + lup;
  std::printf("%-8s SP %.2f + K %.1f + LUP %.1f = T %.1f us\n", size.name, sp, k, lup, t);
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const double us = median(exchange[w].us);
    std::printf("%-8s %-36s %10.1f us  measured/T %.2f\n", size.name, ways[w].name.c_str(), us, us / t);
  }
}

}  // namespace halo
