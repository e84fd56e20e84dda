/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Preloaded, this makes MPI one that says once of receives that are over, where it is asked for their statuses, that
 * the last of them has failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

typedef int (*testall_fn)(int count, MPI_Request* requests, int* done, MPI_Status* statuses);

__attribute__((visibility("default"))) int PMPI_Testall(int count, MPI_Request* requests, int* done,
                                                        MPI_Status* statuses) {
  static int has_failed; /* libmpix receives under a lock of its own */
  testall_fn real = (testall_fn)dlsym(RTLD_NEXT, "PMPI_Testall");
  int i, code;
  if (!real) abort();
  code = real(count, requests, done, statuses);
  if (code != MPI_SUCCESS || !*done || count == 0 || statuses == MPI_STATUSES_IGNORE || has_failed) return code;
  has_failed = 1;
  for (i = 0; i < count; ++i) statuses[i].MPI_ERROR = i + 1 < count ? MPI_SUCCESS : MPI_ERR_TRUNCATE;
  return MPI_ERR_IN_STATUS;
}
