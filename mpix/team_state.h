// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collective/collectives.h"
#include "mpi_library.h"
#include "team/team.h"

namespace mpix {

struct Runtime;

/// What libmpix keeps for a communicator: the value of an attribute of it, which is not copied to duplicates, and ends
/// with the communicator. Windows keep the team for as long as they need it.
///
/// All ranks have the attribute, or none does: it is kept where a window's creation has told all ranks that all have
/// the team, and taken away where some rank had none (MpiBootstrap::lacks_team). Whether the window could be made is of
/// no concern. A creation that MPI failed leaves none, on those ranks that MPI told.
struct CommState {
  ~CommState();
  CommState() = default;
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  std::vector<int> nodes;                    ///< by rank: a number that is the same for ranks of one node
  MPI_Comm node = MPI_COMM_NULL;             ///< the ranks of this node, in order
  bool owns_node = false;                    ///< it is not the communicator itself
  std::shared_ptr<const Team> team;          ///< null: it is being made
  std::shared_ptr<Collectives> collectives;  ///< null: none were called
  MPI_Comm own = MPI_COMM_NULL;              ///< where there are some, for their end: own_comm_like()
  std::optional<bool> some_may_hide;         ///< window memory from MPI (allocate_hidden); none: not asked yet
  bool spans_nodes() const;
};

/// Throws where there is none, or an inter-communicator. `who_needs`: "collectives on streams need".
void require_intra(MPI_Comm comm, const char* who_needs);

/// The state of a communicator, collectively made where there is none; then without a team.
CommState& comm_state_of(MPI_Comm comm);
/// The communicator has a team afterwards. Returns the way to ranks of other nodes; null: there are none, or there is
/// no way (Runtime::no_budget). Throws Error where there is no device.
OperationBudget* make_team_if_none(CommState& ranks, Bootstrap& bootstrap, Runtime& runtime);
/// Of those ranks; empty: there is a way, or nobody needs one. Behind make_team_if_none().
std::string why_no_budget(const CommState& ranks, const Runtime& runtime);
/// Null: there is none.
CommState* find_comm_state(MPI_Comm comm);
/// Of all ranks alike, after the creation that made it.
void forget_comm_state(MPI_Comm comm);
void release_comm_keyval();

}  // namespace mpix
