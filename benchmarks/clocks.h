// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpix_device/memory.h"
#include "support/channel.h"
#include "support/streams.h"

/// The clock of the CPU, that of kernels, and both on one axis.
namespace benchmark {

inline std::uint64_t nanoseconds() {
  using Clock = std::chrono::steady_clock;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

/// Answers with the time by its own clock.
struct TellTime {
  const std::uint64_t* asked;
  std::uint64_t *told, first, count, *stamps;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      while (mpix::load_acquire(asked) < first + i) support::let_other_blocks_run();
      stamps[i] = MPIX_Dev_clock();
      mpix::store_after_loads(told, first + i);
    }
  }
};

/// Two clocks, compared by questions and answers, words in memory of the host: the middle of the shortest round trip is
/// the time at which the block looked, and half of it the error. At the start and at the end, as they may run at
/// different rates.
class Clocks {
 public:
  Clocks() { begin_ = compared(); }
  ~Clocks() { support::release_pinned(words_); }
  Clocks(const Clocks&) = delete;
  Clocks& operator=(const Clocks&) = delete;

  void end() {
    end_ = compared();
    rate_ = (end_.cpu - begin_.cpu) / static_cast<double>(end_.gpu - begin_.gpu);
  }
  /// Nanoseconds after `zero`, of the CPU's clock.
  double of_cpu(std::uint64_t time) const { return static_cast<double>(static_cast<std::int64_t>(time - zero_)); }
  double of_kernel(std::uint64_t time) const {
    return begin_.cpu + rate_ * static_cast<double>(static_cast<std::int64_t>(time - begin_.gpu));
  }
  double error() const { return std::max(begin_.error, end_.error); }
  double rate() const { return rate_; }

 private:
  static constexpr std::size_t rounds = 1000;
  struct Point {
    std::uint64_t gpu = 0;
    double cpu = 0, error = 0;
  };

  Point compared() {
    const std::uint64_t first = asked_ + 1;
    std::uint64_t *const asked = words_, *const told = words_ + 16, *const stamps = words_ + 32;
    support::launch_blocks(TellTime{asked, told, first, rounds, stamps}, 1, 32);
    std::vector<std::uint64_t> from, to;
    for (std::size_t i = 0; i < rounds; ++i) {
      ++asked_;
      from.push_back(nanoseconds());
      mpix::store_release(asked, asked_);
      while (mpix::load_acquire(told) < asked_) support::let_others_run();
      to.push_back(nanoseconds());
    }
    support::synchronize();
    std::size_t best = 0;
    for (std::size_t i = 1; i < rounds; ++i)
      if (to[i] - from[i] < to[best] - from[best]) best = i;
    const double half = static_cast<double>(to[best] - from[best]) / 2;
    return {stamps[best], of_cpu(from[best]) + half, half};
  }

  /// The number that is asked, the one that was told, and the times.
  std::uint64_t* const words_ = static_cast<std::uint64_t*>(support::allocate_pinned((32 + rounds) * 8));
  std::uint64_t asked_ = 0;
  const std::uint64_t zero_ = nanoseconds();
  Point begin_, end_;
  double rate_ = 1;
};

}  // namespace benchmark
