// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <exception>

#include "base/job_environment.h"
#include "base/log.h"
#include "device/cuda/cuda_device.h"
#include "device/hip/hip_device.h"
#include "device_memory.h"
#include "errors.h"
#include "mpi_bootstrap.h"
#include "right_mpi.h"
#include "runtime.h"
#include "team_state.h"
#include "window_create.h"
#include "window_state.h"

namespace mpix {
namespace {

// What the ranks tell each other beside what the engine does.
constexpr unsigned hidden = 1;   ///< MPI's window is over nothing
constexpr unsigned on_gpu = 2;   ///< the window is over memory of a GPU
constexpr unsigned has_gpu = 4;  ///< the device is one

unsigned flags_of(const WinState& state) {
  const Runtime* runtime = find_runtime();
  if (!runtime || !runtime->device) return state.hidden ? hidden : 0u;
  const bool gpu = !runtime->device->is_host();
  return (state.hidden ? hidden : 0u) | (gpu ? has_gpu : 0u) |
         (runtime->device->hidden_from_host(state.base) ? on_gpu : 0u);
}

bool is_mpich() { return mpi_version().find("MPICH") != std::string::npos; }

/// Build the engine's window on every rank, or on none. Returns why not, and the flags of all ranks.
std::string build(WinState& state, MPI_Win win, MPI_Comm comm, const NewWindow& created, unsigned* flags) {
  CommState& ranks = comm_state_of(comm);
  MpiBootstrap bootstrap(comm, ranks, flags_of(state),
                         ranks.team && ranks.team->foresees_window() ? MpiBootstrap::no_node : 0);
  const auto failure = failure_of(bootstrap, Fault::other, [&] {
    Runtime& runtime = ensure_runtime(launcher_local_ranks());
    const LocalMemory memory{created.base, static_cast<std::size_t>(created.bytes),
                             static_cast<std::size_t>(created.displacement_unit), created.lazy_post};
    OperationBudget* const budget = make_team_if_none(ranks, bootstrap, runtime);
    state.window = std::make_unique<Window>(name_of(win), memory, ranks.team, bootstrap, *runtime.device,
                                            runtime.settings, budget, why_no_budget(ranks, runtime));
  });
  *flags = bootstrap.flags_of_all();
  if (*flags & MpiBootstrap::lacks_team) forget_comm_state(comm);
  return failure ? failure->what() : "";
}

void build_or_explain(WinState& state, MPI_Win win, MPI_Comm comm, const NewWindow& created, unsigned* flags) {
  if (created.flavour == MPI_WIN_FLAVOR_DYNAMIC) {
    state.unavailable_fault = Fault::unsupported;
    state.unavailable = "windows of MPI_Win_create_dynamic have no stream epochs";
    return;
  }
  std::string failure;
  try {
    failure = build(state, win, comm, created, flags);
  } catch (const Refused&) {
    failure = "an MPI call failed while the ranks introduced themselves";
  }
  if (failure.empty()) return;
  const Runtime* runtime = find_runtime();
  if (runtime && runtime->device) state.unavailable_fault = Fault::unsupported;
  state.unavailable = "stream epochs are not available on this window: " + failure;
}

}  // namespace

int adopt(MPI_Win win, MPI_Comm comm, const NewWindow& created) {
  return guarded(Caller::on_comm(created.call, comm), [&] {
    auto owner = std::make_unique<WinState>();
    WinState& state = *owner;
    state.flavour = created.flavour;
    state.device_memory = created.device_memory;
    state.hidden = created.hidden;
    state.base = created.base;
    state.bytes = created.bytes;
    state.displacement_unit = static_cast<int>(created.displacement_unit);
    state.lazy_post = created.lazy_post;
    check(PMPI_Win_get_group(win, &state.group));
    check(PMPI_Group_size(state.group, &state.size));
    attach(win, owner.get());
    owner.release();
    if (!created.name.empty()) check(PMPI_Win_set_name(win, created.name.c_str()));
    unsigned flags = 0;
    build_or_explain(state, win, comm, created, &flags);
    state.rma_refused = (flags & hidden) != 0;
    // With a GPU in use a window over memory of the CPU is an ordinary one, and no cause for alarm.
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0 && !state.unavailable.empty() && created.flavour != MPI_WIN_FLAVOR_DYNAMIC)
      log((flags & has_gpu) && !(flags & on_gpu) ? LogLevel::info : LogLevel::warn,
          std::string(created.call) + " on window '" + name_of(win) + "': " + state.unavailable);
    state.follow_access_epoch();
  });
}

namespace {

/// Whether it may come to hide memory of this rank's from Open MPI.
bool may_hide() {
  const Runtime* runtime = find_runtime();
  return runtime && runtime->device && !runtime->device->is_host() &&
         !runtime->settings.mpi_gpu_aware.value_or(mpi_says_gpu_aware());
}

/// Collective. With the communicator's state there is a runtime on all ranks: what may_hide() says stays.
bool some_may_hide(MPI_Comm comm) {
  CommState& ranks = comm_state_of(comm);
  if (!ranks.some_may_hide) {
    int some = may_hide() ? 1 : 0;
    check(PMPI_Allreduce(MPI_IN_PLACE, &some, 1, MPI_INT, MPI_MAX, comm));
    ranks.some_may_hide = some != 0;
  }
  return *ranks.some_may_hide;
}

}  // namespace

bool hide_from_mpi(const void* base, MPI_Aint bytes) {
  // It may be the first that the process hears of libmpix.
  const Runtime* runtime = base && mpi_works() ? &ensure_runtime(launcher_local_ranks()) : find_runtime();
  if (!runtime || !runtime->device || !runtime->device->hidden_from_host(base)) return false;
  if (!runtime->settings.mpi_gpu_aware.value_or(mpi_says_gpu_aware())) return true;
  if (runtime->settings.mpi_gpu_aware || !is_mpich()) return false;
  try {
    runtime->device->use_memory_of(base, static_cast<std::size_t>(bytes));
    return !runtime->device->shareable(base);
  } catch (const Error&) {
    return false;  // memory of another GPU, say: ordinary epochs work
  }
}

/// The ranks have the same library, and so all ask each other or none does: a rank may well have no GPU. Where none has
/// one, they ask once for a communicator, not for each of its windows.
bool allocate_hidden(MPI_Comm comm, bool hidden) {
  if (!(cuda_is_built || hip_is_built) || mpi_version().find("Open MPI") == std::string::npos) return false;
  try {
    if (!some_may_hide(comm)) return false;
  } catch (...) {  // Refused, too
    return false;  // MPI says why when it creates the window
  }
  int all = hidden ? 1 : 0;
  return PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all != 0;
}

int allocate_on_all(const char* call, MPI_Aint bytes, MPI_Comm comm, void** base) {
  return guarded(Caller::on_comm(call, comm), [&] {
    std::string failure;
    Fault fault = Fault::memory;
    try {
      if (bytes < 0) throw Error(fault = Fault::size, "negative size");
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
    throw Error(fault, own ? failure : "another rank could not allocate memory of the device");
  });
}

}  // namespace mpix
