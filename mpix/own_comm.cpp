// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "own_comm.h"

#include "errors.h"

namespace mpix {

MPI_Comm own_comm_like(MPI_Comm comm) {
  int rank = 0;
  check(PMPI_Comm_rank(comm, &rank));
  MPI_Comm own = MPI_COMM_NULL;
  check(PMPI_Comm_split(comm, 0, rank, &own));
  check(PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
  return own;
}

}  // namespace mpix
