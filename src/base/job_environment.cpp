// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/job_environment.h"

#include <cstdlib>

namespace mpix {
namespace {

/// 0 where it is not set, or is no number.
long number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::strtol(text, nullptr, 10) : 0;
}

/// The ranks of all nodes, and those of this one.
struct RankCounts {
  const char *all, *local;
};
constexpr RankCounts rank_counts[] = {
    {"PMI_SIZE", "MPI_LOCALNRANKS"},                         // Hydra: MPICH, Intel MPI
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},  // Open MPI
};
constexpr const char* node_counts[] = {"SLURM_STEP_NUM_NODES", "FLUX_JOB_NNODES"};

}  // namespace

bool launcher_has_several_nodes() {
  for (const RankCounts& counts : rank_counts)
    if (number_in(counts.local) > 0 && number_in(counts.all) > number_in(counts.local)) return true;
  for (const char* count : node_counts)
    if (number_in(count) > 1) return true;
  return false;
}

int launcher_local_ranks() {
  for (const RankCounts& counts : rank_counts)
    if (const long local = number_in(counts.local); local > 0) return static_cast<int>(local);
  const long tasks = number_in("SLURM_STEP_TASKS_PER_NODE");  // as in 4(x2)
  return tasks > 0 ? static_cast<int>(tasks) : 1;
}

}  // namespace mpix
