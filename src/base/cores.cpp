// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

namespace mpix {

double cores_per_rank(int local_ranks) {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  CPU_ZERO(&set);
  const long usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
  return usable < online ? static_cast<double>(usable) : static_cast<double>(usable) / local_ranks;
}

bool run_on_core(int core) {
  if (core >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace mpix
