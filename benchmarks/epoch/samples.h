// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

namespace epoch {

/// µs
inline double wall() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU time of this thread, in µs: what other processes on the core do not disturb.
inline double thread_cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  double median() {
    if (values_.empty()) return 0;
    std::sort(values_.begin(), values_.end());
    return values_[values_.size() / 2];
  }

 private:
  std::vector<double> values_;
};

/// Two readings of the clock are not what lies between them.
inline double cost_of_cpu_clock() {
  Samples empty;
  for (int i = 0; i < 1000; ++i) {
    const double before = thread_cpu();
    empty.add(thread_cpu() - before);
  }
  return empty.median();
}

}  // namespace epoch
