// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

using mpix::WinState;

#define MPIX_TEXT_OF(name) #name
#define MPIX_TEXT(name) MPIX_TEXT_OF(name)

#define MPIX_COUNT int
#define MPIX_CALL(name) name
#include "rma_calls.h"
#undef MPIX_COUNT
#undef MPIX_CALL

#ifdef HAVE_MPI_LARGE_COUNT
#define MPIX_COUNT MPI_Count
#define MPIX_CALL(name) name##_c
#include "rma_calls.h"
#endif

MPIX_INTERPOSED int MPI_Fetch_and_op(const void* origin_addr, void* result_addr, MPI_Datatype datatype, int target_rank,
                                     MPI_Aint target_disp, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Fetch_and_op", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] { return PMPI_Fetch_and_op(origin_addr, result_addr, datatype, target_rank, target_disp, op, win); });
}

MPIX_INTERPOSED int MPI_Compare_and_swap(const void* origin_addr, const void* compare_addr, void* result_addr,
                                         MPI_Datatype datatype, int target_rank, MPI_Aint target_disp, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Compare_and_swap", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Compare_and_swap(origin_addr, compare_addr, result_addr, datatype, target_rank, target_disp, win);
      });
}
