// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "window_state.h"

namespace mpix {

/// The arguments of MPI_Put and MPI_Put_c.
struct PutArguments {
  const void* origin;
  MPI_Count origin_count;
  MPI_Datatype origin_type;
  int target;
  MPI_Aint displacement;
  MPI_Count target_count;
  MPI_Datatype target_type;
};

/// Put in a stream access epoch: check, and have the engine record it. Returns MPI_SUCCESS or the
/// code of the error that it raised.
int record_put(const char* call, MPI_Win win, WinState& state, const PutArguments& put);

/// The other RMA calls there: they raise an error, but to MPI_PROC_NULL, where they do nothing. (Request-based ones owe
/// the program a request: MPI's to make.)
int refuse_operation(const char* call, MPI_Win win, WinState& state, int target);
int refuse_request_based(const char* call, MPI_Win win, WinState& state);

/// An RMA call of the program: `ours(call, state)` in a stream epoch, and where there is no epoch but should be one;
/// else MPI's.
template <class Ours, class MpiDoes>
int rma_call(const char* call, MPI_Win win, Ours ours, MpiDoes mpi_does) {
  WinState* const state = recording_state(win);
  return state && !state->is_mpis_to_judge() ? ours(call, *state) : mpi_does();
}

}  // namespace mpix
