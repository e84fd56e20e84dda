// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The parts of a collective call, as a GPU has them: each is a thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>

#include "wire/collective.h"
#include "wire/collective_lines.h"
#include "wire/collective_spans.h"

namespace collective_test {

using namespace mpix;

constexpr std::uint32_t parts_of_a_rank = 3;

/// A crew of one thread, which is one of several of its rank.
struct PartCrew {
  static constexpr std::uint32_t counted_parts = most_parts, batch = 4;
  static constexpr bool root_has_all = true;
  const Collective& call;
  std::uint32_t part;
  std::uint64_t cost;
  std::mt19937& random;

  Workers workers() const { return Workers{0, 1}; }
  bool agree(bool yes) const { return yes; }
  void tell(std::uint32_t) const {}
  template <class Look>
  bool until(Look look) const {
    for (int polls = 0; !look(); ++polls) {
      if (load_relaxed(&call.host->released) != 0) return false;
      if (polls > 500'000) store_release(&call.host->released, 1);  // some 40 s: ranks go different ways
      if (polls > 20) std::this_thread::sleep_for(std::chrono::microseconds(10));
      std::this_thread::yield();
    }
    return true;
  }
  bool await(std::uint32_t, const Line* line, std::uint32_t number, std::uint64_t* data) const {
    return until([&] { return line_arrived(line, number, data); });
  }
  bool await(std::uint32_t, const std::uint64_t* word, std::uint64_t progress) const {
    return until([&] { return has_come(load_acquire(word), progress); });
  }
  void report(std::uint32_t rank, std::uint64_t, std::uint64_t) const {
    store_release(&call.host->differs, rank + 1);
    store_release(&call.host->released, 1);
  }
  bool combine_by_function(const Collective&, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t) const {
    return false;
  }
  template <class Given>
  bool combine_by_function(const Collective&, const Given&, Span) const {
    return false;
  }
  /// The clock of part 0 shows 0 at the begin, and at the end what the test has made up, with noise of this rank.
  std::uint64_t now() const {
    if (call.launched == 0 || part != 0) return 0;
    return cost * (call.direct ? 1 : 2) + random() % 100;
  }
};

/// The launches of a rank: one begins when all parts of the one before have ended.
class Launches {
 public:
  void begin(std::uint32_t number) {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [&] { return ended_ >= number * parts_of_a_rank; });
  }
  void end() {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (++ended_ % parts_of_a_rank == 0) changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t ended_ = 0;
};

}  // namespace collective_test
