// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

#ifdef HAVE_MPI_LARGE_COUNT

using mpix::WinState;

MPIX_INTERPOSED int MPI_Put_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                              int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                              MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Put_c", win,
      [=](const char* call, WinState& state) {
        return mpix::record_put(
            call, win, state,
            {origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype});
      },
      [=] {
        return PMPI_Put_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                          target_datatype, win);
      });
}

MPIX_INTERPOSED int MPI_Get_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                              MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Get_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Get_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                          target_datatype, win);
      });
}

MPIX_INTERPOSED int MPI_Accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                     int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                     MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Accumulate_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Accumulate_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                                 target_datatype, op, win);
      });
}

MPIX_INTERPOSED int MPI_Get_accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                         void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                         int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                         MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Get_accumulate_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Get_accumulate_c(origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                     result_datatype, target_rank, target_disp, target_count, target_datatype, op, win);
      });
}

MPIX_INTERPOSED int MPI_Rput_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                               int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                               MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rput_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                       target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rput_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPI_Rget_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                               MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win,
                               MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rget_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                       target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rget_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPI_Raccumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                      int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                      MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Raccumulate_c(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                              target_datatype, op, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Raccumulate_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPI_Rget_accumulate_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                          void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                          int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rget_accumulate_c(origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                  result_datatype, target_rank, target_disp, target_count, target_datatype, op, win,
                                  request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rget_accumulate_c", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

#endif
