// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpix/messages/world.h"

#include <algorithm>
#include <random>

#include "base/job_environment.h"
#include "base/settings.h"
#include "mpix/errors.h"
#include "mpix/own_comm.h"

namespace mpix {
namespace {

/// What is wrong with the settings is told when the runtime starts.
bool read_settings(Settings* settings) {
  try {
    *settings = Settings::from_environment();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::shared_ptr<MessageWorld> MessageWorld::make_if_needed(const std::vector<int>& nodes) {
  constexpr int may_need = 1, pretends = 2;
  Settings settings{};
  int wishes = 0;
  if (read_settings(&settings)) {
    if (settings.nic == "auto" || settings.nic == "mpi") wishes |= may_need;
    if (settings.node_size > 0 && static_cast<std::size_t>(settings.node_size) < nodes.size()) wishes |= pretends;
  }
  int all = 0;
  check(PMPI_Allreduce(&wishes, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD));
  const bool one_node =
      std::count(nodes.begin(), nodes.end(), nodes.front()) == static_cast<std::ptrdiff_t>(nodes.size());
  if (!(all & may_need) || (one_node && !(all & pretends))) return nullptr;
  return std::shared_ptr<MessageWorld>(new MessageWorld);
}

MessageWorld::MessageWorld() {
  comm_ = own_comm_like(MPI_COMM_WORLD);
  PMPI_Comm_set_name(comm_, "libmpix");
  check(PMPI_Comm_rank(comm_, &rank_));
  check(PMPI_Comm_size(comm_, &size_));
  if (rank_ == 0) {
    std::random_device entropy;
    id_ = (static_cast<std::uint64_t>(entropy()) << 32) | entropy();
  }
  check(PMPI_Bcast(&id_, 1, MPI_UINT64_T, 0, comm_));
  int own_level = MPI_THREAD_SINGLE;
  check(PMPI_Query_thread(&own_level));
  check(PMPI_Allreduce(&own_level, &thread_level_, 1, MPI_INT, MPI_MIN, comm_));
}

int thread_level(int required) {
  Settings settings{};
  if (!read_settings(&settings)) return required;
  // On one node, where messages carry no epochs, the locks of MPI_THREAD_MULTIPLE would be for nothing.
  const bool may_need = settings.nic == "auto" && (settings.node_size > 0 || launcher_has_several_nodes());
  return may_need || settings.nic == "mpi" || settings.channel_thread
             ? std::max(required, static_cast<int>(MPI_THREAD_MULTIPLE))
             : required;
}

}  // namespace mpix
