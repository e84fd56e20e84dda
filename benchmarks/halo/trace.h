// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/clocks.h"

namespace halo {

using Clock = std::chrono::steady_clock;
using benchmark::nanoseconds;

/// What the CPU did in an iteration. Kernels write theirs to a table of the messages.
struct Trace {
  struct Span {
    std::string name;
    std::uint64_t begin, end;
  };
  std::vector<Span> spans;
};

/// Until its end; without a trace it does nothing.
class Spanned {
 public:
  Spanned(Trace* trace, const char* what, int message = -1)
      : trace_(trace), what_(what), message_(message), begin_(trace ? nanoseconds() : 0) {}
  ~Spanned() {
    if (!trace_) return;
    std::string name = what_;
    if (message_ >= 0) name += " " + std::to_string(message_);
    trace_->spans.push_back({std::move(name), begin_, nanoseconds()});
  }
  Spanned(const Spanned&) = delete;
  Spanned& operator=(const Spanned&) = delete;

 private:
  Trace* const trace_;
  const char* const what_;
  const int message_;
  const std::uint64_t begin_;
};

}  // namespace halo
