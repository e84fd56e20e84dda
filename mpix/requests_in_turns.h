// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstddef>

namespace mpix {

/// Which of many requests MPI is asked for next. MPICH lets its network move once a call, and once more for every
/// eighth request (MPIR_CVAR_REQUEST_POLL_FREQ); and each time a network that copies within the node copies up to 512
/// KiB. So one call for all of a large exchange took 0.7 ms, in which nobody started the sends that were packed by
/// then, nor heard of what had come.
class RequestsInTurns {
 public:
  static constexpr std::size_t most_in_a_call = 7;

  /// The oldest every second time, as they are likely to be over next; and the others in turns, until a look has taken
  /// long. `count()`: requests, in the order in which they have begun. `test(place)`: at most most_in_a_call of them,
  /// from that place on; removes those that are over, and returns where the next one is.
  template <class Count, class Test>
  void look(const Count& count, const Test& test) {
    const auto begin = std::chrono::steady_clock::now();
    oldest_first_ = !oldest_first_ || count() <= most_in_a_call;
    if (oldest_first_ && test(std::size_t{0}) >= count()) return;
    bool is_due = !oldest_first_;
    for (std::size_t calls = count() / most_in_a_call + 1; calls > 0; --calls) {
      if (!is_due && std::chrono::steady_clock::now() - begin > longest_look) return;
      is_due = false;
      next_ = test(next_ < count() ? next_ : 0);
    }
  }

 private:
  static constexpr auto longest_look = std::chrono::microseconds(10);
  bool oldest_first_ = false;
  std::size_t next_ = 0;
};

}  // namespace mpix
