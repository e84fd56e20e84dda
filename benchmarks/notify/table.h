// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/channel.h"

/// What is printed, and how it comes about.
namespace notify {

using Clock = std::chrono::steady_clock;

inline int runs = 7;
inline bool csv = false;

inline double since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Of a hundred parts, so many are not longer.
inline double percentile(std::vector<double> values, int percent) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * static_cast<std::size_t>(percent) / 100)];
}
inline double median(std::vector<double> values) { return percentile(std::move(values), 50); }

/// Each `way` once in turn, `runs` times and once before; the median of each.
inline std::vector<double> in_turns(const std::vector<std::function<double()>>& ways) {
  std::vector<std::vector<double>> all(ways.size());
  for (int run = 0; run <= runs; ++run)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double value = ways[i]();
      if (run > 0) all[i].push_back(value);
    }
  std::vector<double> medians;
  for (const auto& one : all) medians.push_back(median(one));
  return medians;
}

inline void row(const std::string& name, double value, const char* unit, double by_hand = 0) {
  if (csv)
    std::printf("%s,%.4g,%s,%.4g\n", name.c_str(), value, unit, by_hand);
  else if (by_hand > 0)
    std::printf("%-58s %9.2f %-6s by hand %9.2f  ratio %.2f\n", name.c_str(), value, unit, by_hand, value / by_hand);
  else
    std::printf("%-58s %9.2f %s\n", name.c_str(), value, unit);
}

/// Time of a kernel, in microseconds, from its launch to its end; `meanwhile` on this thread.
template <class Kernel>
double timed(const Kernel& kernel, int blocks, const std::function<void()>& meanwhile = nullptr) {
  const auto begin = Clock::now();
  support::launch_blocks(kernel, blocks, 32);
  if (meanwhile) meanwhile();
  support::synchronize();
  return since(begin);
}

/// Of the device: not 0: what a call of a kernel has returned.
inline int* failed_word = nullptr;
inline void check_failed() {
  int failed = 0;
  support::to_host(&failed, failed_word, sizeof failed);
  if (failed == 0) return;
  std::fprintf(stderr, "a kernel's call failed: %d\n", failed);
  std::exit(1);
}

}  // namespace notify
