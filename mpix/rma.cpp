// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

using mpix::WinState;

MPIX_INTERPOSED int MPI_Put(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                            MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Put", win,
      [=](const char* call, WinState& state) {
        return mpix::record_put(
            call, win, state,
            {origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype});
      },
      [=] {
        return PMPI_Put(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                        target_datatype, win);
      });
}

MPIX_INTERPOSED int MPI_Get(void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                            MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Get", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Get(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                        target_datatype, win);
      });
}

MPIX_INTERPOSED int MPI_Accumulate(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                                   int target_rank, MPI_Aint target_disp, int target_count,
                                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Accumulate", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Accumulate(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                               target_datatype, op, win);
      });
}

MPIX_INTERPOSED int MPI_Get_accumulate(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                                       void* result_addr, int result_count, MPI_Datatype result_datatype,
                                       int target_rank, MPI_Aint target_disp, int target_count,
                                       MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      "MPI_Get_accumulate", win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return PMPI_Get_accumulate(origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                   result_datatype, target_rank, target_disp, target_count, target_datatype, op, win);
      });
}

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

MPIX_INTERPOSED int MPI_Rput(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                             MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Win win,
                             MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rput(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                     target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rput", win, [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); },
      mpi_does);
}

MPIX_INTERPOSED int MPI_Rget(void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                             MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Win win,
                             MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rget(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                     target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rget", win, [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); },
      mpi_does);
}

MPIX_INTERPOSED int MPI_Raccumulate(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                                    int target_rank, MPI_Aint target_disp, int target_count,
                                    MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Raccumulate(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                            target_datatype, op, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Raccumulate", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPI_Rget_accumulate(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                                        void* result_addr, int result_count, MPI_Datatype result_datatype,
                                        int target_rank, MPI_Aint target_disp, int target_count,
                                        MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return PMPI_Rget_accumulate(origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
                                target_rank, target_disp, target_count, target_datatype, op, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      "MPI_Rget_accumulate", win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}
