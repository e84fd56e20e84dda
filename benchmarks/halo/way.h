// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trace.h"

namespace halo {

/// What a loop of the CPU found: a task, a copy that is over, a message; and whether it was there at the next look.
struct Events {
  std::uint64_t all = 0, chained = 0, longest = 0;

  void found() {
    ++all;
    if (chain_++ > 0) ++chained;
    longest = std::max(longest, chain_);
  }
  void missed() { chain_ = 0; }
  void forget() { *this = Events{}; }

 private:
  std::uint64_t chain_ = 0;
};

/// A row: one way to exchange all messages.
struct Way {
  enum class Kind { baseline, task_queue, other };
  enum class Blocks { unseen, of_parts, of_messages };
  std::string name;
  std::function<void(Trace*)> exchange;  ///< the trace may be null
  /// With other data before each exchange of the call; may be empty.
  std::function<void()> exchange_changed;
  /// Of a call in which the clock of kernels is read behind each exchange: microseconds of each; may be empty.
  std::function<std::vector<double>()> times_of_each;
  Blocks traced = Blocks::unseen;  ///< whose times are in Messages::stamps() behind a traced exchange
  Kind kind = Kind::other;
  bool blocks = false;  ///< its sends
  int at_once = 1;      ///< exchanges of a call
  double launches = 0;  ///< of kernels and graphs, for an exchange
  const char* paper = "-";
  std::shared_ptr<Events> events = nullptr;
};

/// What has to live as long as they do is in the functions.
using Ways = std::vector<Way>;

}  // namespace halo
