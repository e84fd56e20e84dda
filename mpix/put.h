// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>

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

/// An RMA call on a window on which this process has opened no access epoch that libmpix saw. MPI judges, as it may
/// have seen one (opened through Fortran, or by a tool, past libmpix); where it sees none either, libmpix says what is
/// missing.
int judged_by_mpi(const char* call, MPI_Win win, const std::function<int()>& mpi_does);

/// An RMA call of the program: `ours(call, state)` in a stream epoch, and where there is no epoch but should be one;
/// else MPI's.
template <class Ours, class MpiDoes>
int rma_call(const char* call, MPI_Win win, Ours ours, MpiDoes mpi_does) {
  WinState* const state = recording_state(win);
  if (!state) return mpi_does();
  if (state->untouched()) return judged_by_mpi(call, win, mpi_does);
  return ours(call, *state);
}

}  // namespace mpix
