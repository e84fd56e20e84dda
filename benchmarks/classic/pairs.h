// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "mixing.h"
#include "node_memory.h"
#include "options.h"
#include "support/abort.h"

/// Copies of several pairs at once, each by memory of the host or by mapped memory of the GPU: chapter 5's reason to
/// mix them. Ranks 2i and 2i + 1 are a pair.
namespace classic {

/// Rank 2i copies a block to rank 2i + 1.
///
/// | word     | written by, when                                         | polled by |
/// |----------|----------------------------------------------------------|-----------|
/// | sent     | 2i: its copy is over, into memory of the host or the GPU | 2i + 1    |
/// | received | 2i + 1: the block is in its memory                       | 2i        |
///
/// The words are numbers of calls. 2i goes on when the block has been received: then both places are free.
class Pair {
 public:
  Pair(launcher::Stream& stream, std::size_t most)
      : stream_(stream),
        comm_(MPI_COMM_WORLD, benchmark::process() / 2),
        sends_(benchmark::process() % 2 == 0),
        host_(comm_.get(), most * sizeof(float)),
        device_(comm_.get(), receiver, most * sizeof(float)),
        directory_(comm_.get(), 1, 2),
        wrong_(sizeof(std::uint64_t)) {}

  /// Returns when it is done.
  void call(Mechanism how, const float* from, std::size_t count) {
    ++call_;
    if (sends_) {
      place::copy(stream_, how == ipc ? device_.get() : on_host(), from, count * sizeof(float));
      stream_.synchronize();
      directory_.store(0, sent, call_);
      directory_.await(0, received, call_);
      return;
    }
    directory_.await(0, sent, call_);
    if (how == staged) {
      place::copy(stream_, device_.get(), on_host(), count * sizeof(float));
      stream_.synchronize();
    }
    directory_.store(0, received, call_);
  }
  /// The same, with data of its own in `from`. False: some word was wrong, of some pair. Collective.
  bool check(Mechanism how, float* from, std::size_t count) {
    const int sender = benchmark::process() / 2 * 2, blocks = loops::blocks_for(count);
    if (sends_) stream_.run(FillBlock{from, count, sender, call_, blocks}, blocks);
    const std::uint64_t turn = call_;
    call(how, from, count);
    if (!sends_)
      stream_.run(CompareBlock{device_.get(), count, sender, turn, wrong_.as<std::uint64_t>(), blocks}, blocks);
    std::uint64_t mine = place::fetch(stream_, wrong_.as<std::uint64_t>()), all = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    const bool right = all == wrong_before_;
    wrong_before_ = all;
    return right;
  }

 private:
  enum Word { sent, received };
  static constexpr int receiver = 1;
  /// Freed behind what is shared by its ranks.
  class Part {
   public:
    Part(MPI_Comm comm, int color) { CHECK_MPI(MPI_Comm_split(comm, color, 0, &comm_)); }
    ~Part() { CHECK_MPI(MPI_Comm_free(&comm_)); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    MPI_Comm get() const { return comm_; }

   private:
    MPI_Comm comm_ = MPI_COMM_NULL;
  };
  float* on_host() const { return static_cast<float*>(host_.get()); }

  launcher::Stream& stream_;
  const Part comm_;
  const bool sends_;
  const HostMemory host_;
  const DeviceMemory device_;
  const Directory directory_;
  const place::Memory wrong_;  ///< a count
  std::uint64_t wrong_before_ = 0, call_ = 0;
};

/// A column for each number of pairs that copy by memory of the host: the first ones.
class PairsTable {
 public:
  explicit PairsTable(const Options& options)
      : options_(options),
        most_(*std::max_element(options.sizes.begin(), options.sizes.end())),
        stream_(1, loops::threads),
        send_(most_),
        pair_(stream_, most_ / sizeof(float)) {}

  bool run() {
    if (rank_ == 0) {
      std::printf("\npairs of ranks: %s\n%8s",
                  options_.check_only ? "checked only" : "us a copy and its answer, of the slowest; median", "block");
      for (int by_host = 0; by_host <= pairs_; ++by_host) std::printf(" %7d HS", by_host);
      std::printf("%s\n", options_.check_only ? "" : " |  fastest");
    }
    for (const std::size_t bytes : options_.sizes) measure(bytes);
    return right_;
  }

 private:
  struct Mix {
    std::vector<double> times = {};
    int calls = 1;
    bool right = true;
    double median() const {
      std::vector<double> sorted = times;
      std::sort(sorted.begin(), sorted.end());
      return sorted.empty() ? 0 : sorted[sorted.size() / 2];
    }
  };

  void measure(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<Mix> mixes(static_cast<std::size_t>(pairs_) + 1);
    for (std::size_t by_host = 0; by_host < mixes.size(); ++by_host) {
      check(mixes[by_host], by_host, count);
      if (options_.check_only) continue;
      const double first = time(by_host, count, 4);
      mixes[by_host].calls =
          std::max(1, static_cast<int>(std::min<double>(options_.calls, options_.limit_ms * 1000 / first)));
    }
    for (int round = 0; round < options_.rounds && !options_.check_only; ++round)
      for (std::size_t by_host = 0; by_host < mixes.size(); ++by_host)
        mixes[by_host].times.push_back(time(by_host, count, mixes[by_host].calls));
    for (std::size_t by_host = 0; by_host < mixes.size(); ++by_host) check(mixes[by_host], by_host, count);
    if (rank_ == 0) print(bytes, mixes);
  }
  void check(Mix& mix, std::size_t by_host, std::size_t count) {
    for (int turn = 0; turn < 4; ++turn)
      if (!pair_.check(mechanism(by_host), send_.as<float>(), count)) mix.right = right_ = false;
  }
  double time(std::size_t by_host, std::size_t count, int calls) {
    using clock = std::chrono::steady_clock;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = clock::now();
    for (int i = 0; i < calls; ++i) pair_.call(mechanism(by_host), send_.as<float>(), count);
    double took = std::chrono::duration<double, std::micro>(clock::now() - begin).count() / calls, slowest = 0;
    CHECK_MPI(MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return slowest;
  }
  Mechanism mechanism(std::size_t by_host) const {
    return static_cast<std::size_t>(rank_ / 2) < by_host ? staged : ipc;
  }
  void print(std::size_t bytes, const std::vector<Mix>& mixes) const {
    std::printf("%8zu", bytes);
    for (const Mix& mix : mixes)
      if (!mix.right || options_.check_only)
        std::printf(" %10s", mix.right ? "right" : "WRONG");
      else
        std::printf(" %10.1f", mix.median());
    const auto fastest = std::min_element(
        mixes.begin(), mixes.end(), [](const Mix& one, const Mix& other) { return one.median() < other.median(); });
    if (!options_.check_only) std::printf(" |  %d HS", static_cast<int>(fastest - mixes.begin()));
    std::printf("\n");
    std::fflush(stdout);
  }

  const Options& options_;
  const int rank_ = benchmark::process(), pairs_ = benchmark::processes() / 2;
  const std::size_t most_;
  launcher::Stream stream_;
  const place::Memory send_;
  Pair pair_;
  bool right_ = true;
};

}  // namespace classic
