// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/log.h"

#include <unistd.h>

#include <atomic>

namespace mpix {
namespace {

std::atomic<LogLevel> threshold{LogLevel::warn};
std::atomic<int> own_rank{-1};

}  // namespace

void set_log(LogLevel level, int rank) {
  threshold = level;
  own_rank = rank;
}

bool logs(LogLevel level) { return level <= threshold.load(std::memory_order_relaxed); }

void log(LogLevel level, const std::string& text) {
  if (!logs(level)) return;
  const int rank = own_rank;
  const std::string line = "mpix" + (rank < 0 ? std::string() : "[" + std::to_string(rank) + "]") + ": " + text + "\n";
  // One write, so that the lines of several ranks do not mix. A closed stderr is the user's wish.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace mpix
