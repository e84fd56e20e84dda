// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>
#include <mpi.h>

#include <cstdio>

/// A call that fails ends the job: a benchmark has nothing to save.
#define PEERS_CHECK(call, good, text)                                                    \
  do {                                                                                   \
    const auto result_ = (call);                                                         \
    if (result_ != (good)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text(result_)); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
    }                                                                                    \
  } while (0)

#define CHECK_CUDA(call) PEERS_CHECK(call, cudaSuccess, cudaGetErrorString)

namespace peers {

inline const char* mpi_error_text(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

}  // namespace peers

/// MPI's windows return errors only where asked to; else MPI ends the job by itself.
#define CHECK_MPI(call) PEERS_CHECK(call, MPI_SUCCESS, peers::mpi_error_text)
