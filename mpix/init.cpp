// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device_memory.h"
#include "errors.h"
#include "proxy_world.h"
#include "runtime.h"
#include "window_state.h"

namespace {

int start(const char* call) {
  return mpix::guarded(mpix::Caller::on_world(call), [] {
    const mpix::Runtime& runtime = mpix::start_runtime_over_world();
    if (!runtime.device) throw mpix::Error(mpix::Fault::argument, runtime.failure);
  });
}

}  // namespace

MPIX_INTERPOSED int MPI_Init(int* argc, char*** argv) {
  const int level = mpix::thread_level(MPI_THREAD_SINGLE);
  int provided = MPI_THREAD_SINGLE;
  const int initialized = level == MPI_THREAD_SINGLE ? PMPI_Init(argc, argv)
                                                     : PMPI_Init_thread(argc, argv, level, &provided);
  return initialized == MPI_SUCCESS ? start("MPI_Init") : initialized;
}

MPIX_INTERPOSED int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int initialized = PMPI_Init_thread(argc, argv, mpix::thread_level(required), provided);
  return initialized == MPI_SUCCESS ? start("MPI_Init_thread") : initialized;
}

MPIX_INTERPOSED int MPI_Finalize(void) {
  mpix::release_window_keyval();
  mpix::release_mpi();
  const int finalized = PMPI_Finalize();
  // A program that left a window, or memory of MPI_Alloc_mem, behind may have work under way on it.
  const bool in_use = mpix::any_window_alive() || mpix::device_memory_in_use();
  if (finalized == MPI_SUCCESS && !in_use) mpix::end_runtime();
  return finalized;
}
