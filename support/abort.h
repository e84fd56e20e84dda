// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstdio>

// Checks of calls, for programs that have nothing to save: one that fails ends the job.

#define CHECK_OR_ABORT(call, good, text)                                                 \
  do {                                                                                   \
    const auto result_ = (call);                                                         \
    if (result_ != (good)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text(result_)); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
    }                                                                                    \
  } while (0)

#define CHECK_CUDA(call) CHECK_OR_ABORT(call, cudaSuccess, cudaGetErrorString)
/// Where MPI returns its errors; else MPI ends the job by itself.
#define CHECK_MPI(call) CHECK_OR_ABORT(call, MPI_SUCCESS, support::mpi_error_text)

namespace support {

inline const char* mpi_error_text(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

}  // namespace support
