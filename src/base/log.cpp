// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/log.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

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

void log(LogLevel level, std::string_view text) noexcept {
  if (!logs(level)) return;
  char name[24] = "mpix: ";
  if (const int rank = own_rank; rank >= 0) std::snprintf(name, sizeof name, "mpix[%d]: ", rank);
  const auto part = [](std::string_view from) { return iovec{const_cast<char*>(from.data()), from.size()}; };
  const iovec line[] = {part(name), part(text), part("\n")};
  // One write, so that the lines of several ranks do not mix. A closed stderr is the user's wish.
  if (writev(STDERR_FILENO, line, 3) < 0) return;
}

}  // namespace mpix
