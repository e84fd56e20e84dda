// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "collective/way_table.h"
#include "device/device.h"
#include "mpi_library.h"
#include "mpix/messages/network.h"
#include "mpix/messages/world.h"
#include "net/operation_budget.h"

namespace mpix {

/// What the process has once. Born in MPI_Init, or, where MPI was initialized by another way
/// (sessions, some Fortran bindings), when it is first needed; ends in MPI_Finalize, and never by a
/// static destructor, as programs may leave without MPI_Finalize, with streams at work.
struct Runtime {
  Settings settings{};
  std::unique_ptr<Device> device;  ///< null: `failure` says why
  std::string failure;
  std::shared_ptr<const WayTable> ways;     ///< of collectives; null: no table
  std::unique_ptr<OperationBudget> budget;  ///< null: not opened yet, or `no_budget` says why there is none
  std::string no_budget;
  std::shared_ptr<MessageWorld> message_world;  ///< null: messages of MPI cannot carry epochs
  MessageNetwork* messages = nullptr;           ///< the budget's network, where it is this one
  pid_t process = getpid();
  int local_ranks = 1;  ///< on this node, as far as this process knows
  // By rank of MPI_COMM_WORLD; empty: never asked.
  std::vector<int> world_nodes, world_devices;
};

/// Null: not born yet, or ended.
Runtime* find_runtime();
/// It has neither the threads of its parent nor, perhaps, the locks that they hold, MPI's among them.
bool is_child_of_fork();

/// The runtime, made on the spot if there is none. A process that finds its settings wrong has one
/// as well: its `failure` tells.
Runtime& ensure_runtime(int local_ranks);

/// A session of MPI was made here, and ends: stream calls work, and MPI_Init may never be called.
void note_session(int threads);
void forget_session();
/// As find_runtime(); but where there is a session the runtime is made.
Runtime* runtime_if_mpi_works();
/// MPI is initialized, and not finalized; or there is a session.
bool mpi_works();
/// The thread level; of several sessions the least that one of them has had.
int threads_of_mpi();
/// Throws where it does not.
void require_mpi();
/// Throws where MPI gives one thread at a time only; `why`: some are needed.
void require_threads(const std::string& why);

/// Collective over MPI_COMM_WORLD, so libmpix stands in front of MPI in all of its processes or in
/// none: the nodes of its ranks are known afterwards.
Runtime& start_runtime_over_world();

/// Collective over MPI_COMM_WORLD, in front of MPI_Finalize: the end of what the runtime has of MPI.
void release_mpi();

/// Something that the program has freed is still in use: the runtime stays, too.
void keep_runtime() noexcept;
void end_runtime();

Device& usable_device(Runtime& runtime);

/// The way to ranks of other nodes, opened when first asked for. Null where there is none.
OperationBudget* open_budget(Runtime& runtime);

/// By rank of the communicator: a number that is the same for ranks of one node. Collective, but where MPI_Init has
/// asked for all: then nothing is sent. The runtime exists afterwards.
std::vector<int> nodes_of(MPI_Comm comm);

}  // namespace mpix
