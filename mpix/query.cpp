// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "errors.h"
#include "mpi_library.h"
#include "mpix.h"
#include "runtime.h"
#include "window_state.h"

using mpix::Caller;
using mpix::Error;
using mpix::Fault;

MPIX_INTERPOSED int MPIX_Query_stream_rma(int* active) {
  return mpix::guarded(Caller::on_world("MPIX_Query_stream_rma"), [&] {
    if (!active) throw Error(Fault::argument, "no place for the answer");
    const mpix::Runtime* runtime = mpix::runtime_if_mpi_works();
    *active = runtime && runtime->device ? 1 : 0;
  });
}

MPIX_INTERPOSED int MPIX_Win_get_stats(MPI_Win win, MPIX_Win_stats* stats, size_t size) {
  return mpix::guarded(Caller::on_window("MPIX_Win_get_stats", win), [&] {
    (void)mpix::required(stats, "the counters");
    const mpix::WinState& state = mpix::state_of(win);
    const mpix::Stats now = state.window ? state.window->stats() : mpix::Stats{};
    MPIX_Win_stats known{};
    known.exposure_epochs = now.exposure_epochs;
    known.access_epochs = now.access_epochs;
    known.puts = now.puts;
    known.bytes_mailbox = now.bytes_mailbox;
    known.bytes_direct = now.bytes_direct;
    known.bytes_staged = now.bytes_staged;
    known.plans_built = now.plans_built;
    known.plans_reused = now.plans_reused;
    known.bytes_copied = now.bytes_copied;
    known.bytes_network_eager = now.bytes_network_eager;
    known.bytes_network_direct = now.bytes_network_direct;
    known.network_operations = now.network_operations;
    known.network_budget = now.network_operations_budget;
    known.network_peak = now.network_operations_peak;
    known.throttle_waits = now.throttle_waits;
    known.throttle_wait_ns = now.throttle_nanoseconds;
    mpix::give_counters(stats, size, known);
  });
}
