// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The RMA calls with counts. rma.cpp includes this for each type of these: MPIX_COUNT; and MPIX_CALL(name) is the
// call's name with it.

MPIX_INTERPOSED int MPIX_CALL(MPI_Put)(const void* origin_addr, MPIX_COUNT origin_count, MPI_Datatype origin_datatype,
                                       int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                       MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Put)), win,
      [=](const char* call, WinState& state) {
        return mpix::record_put(
            call, win, state,
            {origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype});
      },
      [=] {
        return MPIX_CALL(PMPI_Put)(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                                   target_datatype, win);
      });
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Get)(void* origin_addr, MPIX_COUNT origin_count, MPI_Datatype origin_datatype,
                                       int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                       MPI_Datatype target_datatype, MPI_Win win) {
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Get)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return MPIX_CALL(PMPI_Get)(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                                   target_datatype, win);
      });
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Accumulate)(const void* origin_addr, MPIX_COUNT origin_count,
                                              MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                                              MPIX_COUNT target_count, MPI_Datatype target_datatype, MPI_Op op,
                                              MPI_Win win) {
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Accumulate)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return MPIX_CALL(PMPI_Accumulate)(origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                                          target_count, target_datatype, op, win);
      });
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Get_accumulate)(const void* origin_addr, MPIX_COUNT origin_count,
                                                  MPI_Datatype origin_datatype, void* result_addr,
                                                  MPIX_COUNT result_count, MPI_Datatype result_datatype,
                                                  int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                                  MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Get_accumulate)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_operation(call, win, state, target_rank); },
      [=] {
        return MPIX_CALL(PMPI_Get_accumulate)(origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                              result_datatype, target_rank, target_disp, target_count, target_datatype,
                                              op, win);
      });
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Rput)(const void* origin_addr, MPIX_COUNT origin_count, MPI_Datatype origin_datatype,
                                        int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                        MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return MPIX_CALL(PMPI_Rput)(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                                target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Rput)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Rget)(void* origin_addr, MPIX_COUNT origin_count, MPI_Datatype origin_datatype,
                                        int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                        MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return MPIX_CALL(PMPI_Rget)(origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                                target_datatype, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Rget)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Raccumulate)(const void* origin_addr, MPIX_COUNT origin_count,
                                               MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                                               MPIX_COUNT target_count, MPI_Datatype target_datatype, MPI_Op op,
                                               MPI_Win win, MPI_Request* request) {
  const auto mpi_does = [=] {
    return MPIX_CALL(PMPI_Raccumulate)(origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                                       target_count, target_datatype, op, win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Raccumulate)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}

MPIX_INTERPOSED int MPIX_CALL(MPI_Rget_accumulate)(const void* origin_addr, MPIX_COUNT origin_count,
                                                   MPI_Datatype origin_datatype, void* result_addr,
                                                   MPIX_COUNT result_count, MPI_Datatype result_datatype,
                                                   int target_rank, MPI_Aint target_disp, MPIX_COUNT target_count,
                                                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                                                   MPI_Request* request) {
  const auto mpi_does = [=] {
    return MPIX_CALL(PMPI_Rget_accumulate)(origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                           result_datatype, target_rank, target_disp, target_count, target_datatype, op,
                                           win, request);
  };
  if (target_rank == MPI_PROC_NULL) return mpi_does();
  return mpix::rma_call(
      MPIX_TEXT(MPIX_CALL(MPI_Rget_accumulate)), win,
      [=](const char* call, WinState& state) { return mpix::refuse_request_based(call, win, state); }, mpi_does);
}
