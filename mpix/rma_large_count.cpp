// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

#ifdef HAVE_MPI_LARGE_COUNT

using mpix::recording_state;
using mpix::WinState;

MPIX_INTERPOSED int MPI_Put_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                              int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                              MPI_Datatype target_datatype, MPI_Win win) {
  if (WinState* state = recording_state(win))
    return mpix::record_put(
        "MPI_Put_c", win, *state,
        {origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype});
  return PMPI_Put_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype,
                    win);
}

MPIX_INTERPOSED int MPI_Get_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                              MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  if (WinState* state = recording_state(win)) return mpix::refuse_operation("MPI_Get_c", win, *state, target_rank);
  return PMPI_Get_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype,
                    win);
}

MPIX_INTERPOSED int MPI_Accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                     int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                     MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  if (WinState* state = recording_state(win))
    return mpix::refuse_operation("MPI_Accumulate_c", win, *state, target_rank);
  return PMPI_Accumulate_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                           target_datatype, op, win);
}

MPIX_INTERPOSED int MPI_Get_accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                         void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                         int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                         MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  if (WinState* state = recording_state(win))
    return mpix::refuse_operation("MPI_Get_accumulate_c", win, *state, target_rank);
  return PMPI_Get_accumulate_c(origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
                               target_rank, target_disp, target_count, target_datatype, op, win);
}

MPIX_INTERPOSED int MPI_Rput_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                               int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                               MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  if (WinState* state = recording_state(win); state && target_rank != MPI_PROC_NULL)
    return mpix::refuse_request_based("MPI_Rput_c", win, *state);
  return PMPI_Rput_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                     target_datatype, win, request);
}

MPIX_INTERPOSED int MPI_Rget_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                               MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win,
                               MPI_Request* request) {
  if (WinState* state = recording_state(win); state && target_rank != MPI_PROC_NULL)
    return mpix::refuse_request_based("MPI_Rget_c", win, *state);
  return PMPI_Rget_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                     target_datatype, win, request);
}

MPIX_INTERPOSED int MPI_Raccumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                      MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  if (WinState* state = recording_state(win); state && target_rank != MPI_PROC_NULL)
    return mpix::refuse_request_based("MPI_Raccumulate_c", win, *state);
  return PMPI_Raccumulate_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                            target_datatype, op, win, request);
}

MPIX_INTERPOSED int MPI_Rget_accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                          void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                          int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  if (WinState* state = recording_state(win); state && target_rank != MPI_PROC_NULL)
    return mpix::refuse_request_based("MPI_Rget_accumulate_c", win, *state);
  return PMPI_Rget_accumulate_c(origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
                                target_rank, target_disp, target_count, target_datatype, op, win, request);
}

#endif
