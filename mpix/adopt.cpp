// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <exception>

#include "core/log.h"
#include "errors.h"
#include "mpi_bootstrap.h"
#include "runtime.h"
#include "window_create.h"
#include "window_state.h"

namespace mpix {
namespace {

/// Build the engine's window on every rank, or on none. Returns why not.
std::string build(WinState& state, MPI_Win win, MPI_Comm comm, const NewWindow& created) {
  MpiBootstrap bootstrap(comm, nodes_of(comm));
  std::string failure;
  try {
    Runtime& runtime = ensure_runtime(1);
    const LocalMemory memory{created.base, static_cast<std::size_t>(created.bytes),
                             static_cast<std::size_t>(created.displacement_unit)};
    state.window = std::make_unique<Window>(name_of(win), memory, bootstrap, usable_device(runtime),
                                            runtime.settings);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  failure = bootstrap.agree(failure);
  if (!failure.empty()) state.window.reset();
  return failure;
}

void build_or_explain(WinState& state, MPI_Win win, MPI_Comm comm, const NewWindow& created) {
  if (created.flavour == MPI_WIN_FLAVOR_DYNAMIC) {
    state.unavailable_fault = Fault::unsupported;
    state.unavailable = "windows of MPI_Win_create_dynamic have no stream epochs";
    return;
  }
  std::string failure;
  try {
    failure = build(state, win, comm, created);
  } catch (const Refused&) {
    failure = "an MPI call failed while the ranks introduced themselves";
  }
  if (failure.empty()) return;
  state.unavailable = "stream epochs are not available on this window: " + failure;
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (rank == 0)
    log(LogLevel::warn,
        std::string(created.call) + " on window '" + name_of(win) + "': " + state.unavailable);
}

}  // namespace

int adopt(MPI_Win win, MPI_Comm comm, const NewWindow& created) {
  return guarded(Caller::on_comm(created.call, comm), [&] {
    auto owner = std::make_unique<WinState>();
    WinState& state = *owner;
    state.flavour = created.flavour;
    state.device_memory = created.device_memory;
    check(PMPI_Win_get_group(win, &state.group));
    check(PMPI_Group_size(state.group, &state.size));
    attach(win, owner.get());
    owner.release();
    build_or_explain(state, win, comm, created);
  });
}

int allocate_on_all(const char* call, MPI_Aint bytes, MPI_Comm comm, void** base) {
  return guarded(Caller::on_comm(call, comm), [&] {
    std::string failure;
    try {
      if (bytes < 0) throw Error(Fault::memory, "negative size");
      *base = allocate_device_memory(static_cast<std::size_t>(bytes));
    } catch (const std::exception& error) {
      failure = error.what();
      *base = nullptr;
    }
    const int own = failure.empty() ? 0 : 1;
    int any = 0;
    const int agreed = PMPI_Allreduce(&own, &any, 1, MPI_INT, MPI_MAX, comm);
    if (agreed == MPI_SUCCESS && !any) return;
    if (*base) release_device_memory(*base);
    check(agreed);
    throw Error(Fault::memory,
                own ? failure : "another rank could not allocate memory of the device");
  });
}

}  // namespace mpix
