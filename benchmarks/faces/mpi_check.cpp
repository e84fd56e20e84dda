// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "mpi_check.h"

#include <mpi.h>

#include <cstdio>

namespace faces {

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::fprintf(stderr, "faces: rank %d: %s:%d: %s: %s\n", rank, file, line, call, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace faces
