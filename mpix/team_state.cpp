// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team_state.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives.h"
#include "errors.h"
#include "runtime.h"

namespace mpix {
namespace {

std::mutex keyval_mutex;
int keyval = MPI_KEYVAL_INVALID;

/// The communicators that have a state: a handle that is none of them may be none of MPI's, which would be an error to
/// ask it about.
std::mutex with_state_mutex;
std::vector<MPI_Comm> with_state;

void note_state_of(MPI_Comm comm) {
  const std::lock_guard<std::mutex> hold(with_state_mutex);
  with_state.push_back(comm);
}
void note_no_state_of(MPI_Comm comm) {
  const std::lock_guard<std::mutex> hold(with_state_mutex);
  with_state.erase(std::remove(with_state.begin(), with_state.end(), comm), with_state.end());
}
bool may_have_state(MPI_Comm comm) {
  const std::lock_guard<std::mutex> hold(with_state_mutex);
  return std::find(with_state.begin(), with_state.end(), comm) != with_state.end();
}

extern "C" int delete_comm_state(MPI_Comm comm, int, void* value, void*) {
  auto* const state = static_cast<CommState*>(value);
  note_no_state_of(comm);
  end_collectives(comm, *state);
  delete state;
  return MPI_SUCCESS;
}

int comm_keyval() {
  std::lock_guard<std::mutex> hold(keyval_mutex);
  if (keyval == MPI_KEYVAL_INVALID)
    check(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_comm_state, &keyval, nullptr));
  return keyval;
}

/// Collective.
void split_by_nodes(CommState& state, MPI_Comm comm) {
  int rank = 0;
  check(PMPI_Comm_rank(comm, &rank));
  const int own = state.nodes[static_cast<std::size_t>(rank)];
  if (!state.spans_nodes()) {
    state.node = comm;
    return;
  }
  check(PMPI_Comm_split(comm, own, rank, &state.node));
  state.owns_node = true;
}

}  // namespace

CommState::~CommState() {
  if (owns_node) PMPI_Comm_free(&node);
}

bool CommState::spans_nodes() const {
  return std::any_of(nodes.begin(), nodes.end(), [this](int node) { return node != nodes.front(); });
}

CommState* find_comm_state(MPI_Comm comm) {
  void* value = nullptr;
  int found = 0;
  check(PMPI_Comm_get_attr(comm, comm_keyval(), &value, &found));
  return found ? static_cast<CommState*>(value) : nullptr;
}

void require_intra(MPI_Comm comm, const char* who_needs) {
  require_mpi();
  if (comm == MPI_COMM_NULL) throw Error(Fault::communicator, "the communicator is MPI_COMM_NULL");
  int is_inter = 0;
  check(PMPI_Comm_test_inter(comm, &is_inter));
  if (is_inter) throw Error(Fault::communicator, std::string(who_needs) + " an intra-communicator");
}

CommState& comm_state_of(MPI_Comm comm) {
  if (CommState* const state = find_comm_state(comm)) return *state;
  auto made = std::make_unique<CommState>();
  made->nodes = nodes_of(comm);
  split_by_nodes(*made, comm);
  note_state_of(comm);
  const int noted = PMPI_Comm_set_attr(comm, comm_keyval(), made.get());
  if (noted != MPI_SUCCESS) note_no_state_of(comm);
  check(noted);
  return *made.release();
}

std::string why_no_budget(const CommState& ranks, const Runtime& runtime) {
  // Until this thread has asked for it another one may be writing the text.
  return ranks.spans_nodes() ? runtime.no_budget : "";
}

OperationBudget* make_team_if_none(CommState& ranks, Bootstrap& bootstrap, Runtime& runtime) {
  Device& device = usable_device(runtime);
  OperationBudget* const budget = ranks.spans_nodes() ? open_budget(runtime) : nullptr;
  if (!ranks.team)
    ranks.team = std::make_shared<const Team>(bootstrap, device, runtime.settings,
                                              budget ? &budget->network() : nullptr, why_no_budget(ranks, runtime));
  return budget;
}

void forget_comm_state(MPI_Comm comm) {
  int key = MPI_KEYVAL_INVALID;
  {
    std::lock_guard<std::mutex> hold(keyval_mutex);
    key = keyval;
  }
  void* value = nullptr;
  int found = 0;
  if (key != MPI_KEYVAL_INVALID && PMPI_Comm_get_attr(comm, key, &value, &found) == MPI_SUCCESS && found)
    PMPI_Comm_delete_attr(comm, key);
}

void release_comm_keyval() {
  std::lock_guard<std::mutex> hold(keyval_mutex);
  if (keyval != MPI_KEYVAL_INVALID) PMPI_Comm_free_keyval(&keyval);
}

namespace {

/// The end of a state is collective, and so belongs in the call that all ranks make. MPI may delete the attribute later
/// than that: MPICH does so when the last request of the communicator goes, a persistent one of the program, say, which
/// one rank frees on its own.
int free_with_state(MPI_Comm* comm, int (*free_comm)(MPI_Comm*)) {
  if (comm && *comm != MPI_COMM_WORLD && *comm != MPI_COMM_SELF && may_have_state(*comm)) forget_comm_state(*comm);
  return free_comm(comm);
}

}  // namespace
}  // namespace mpix

MPIX_INTERPOSED int MPI_Comm_free(MPI_Comm* comm) { return mpix::free_with_state(comm, PMPI_Comm_free); }

MPIX_INTERPOSED int MPI_Comm_disconnect(MPI_Comm* comm) { return mpix::free_with_state(comm, PMPI_Comm_disconnect); }
