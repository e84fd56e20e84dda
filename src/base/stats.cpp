// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/stats.h"

namespace mpix {

namespace {

enum class Whose { window, process };

struct Told : Stats {
  std::uint64_t always = 1;
};

}  // namespace

void Stats::add(const Stats& other) {
#define COUNTER(name, whose, told, before, after) \
  if (Whose::whose == Whose::window) name += other.name;
  MPIX_COUNTERS(COUNTER)
#undef COUNTER
}

std::string describe(const Stats& stats) {
  const Told all{stats};
  std::string text;
#define COUNTER(name, whose, told, before, after) \
  if (all.told != 0) text.append(before).append(std::to_string(all.name)).append(after);
  MPIX_COUNTERS(COUNTER)
#undef COUNTER
  return text;
}

}  // namespace mpix
