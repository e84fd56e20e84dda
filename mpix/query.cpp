// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/stats.h"
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
#define COUNTER(name, whose, told, before, after) known.name = now.name;
    MPIX_COUNTERS(COUNTER)
#undef COUNTER
    static_assert(sizeof known == sizeof now, "MPIX_COUNTERS does not have all counters of MPIX_Win_stats");
    mpix::give_counters(stats, size, known);
  });
}
