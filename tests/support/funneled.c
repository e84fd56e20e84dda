/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Preloaded, this makes MPI one that has no more than MPI_THREAD_FUNNELED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

typedef int (*init_thread_fn)(int* argc, char*** argv, int required, int* provided);

__attribute__((visibility("default"))) int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  init_thread_fn real = (init_thread_fn)dlsym(RTLD_NEXT, "PMPI_Init_thread");
  if (!real) abort();
  return real(argc, argv, required < MPI_THREAD_FUNNELED ? required : MPI_THREAD_FUNNELED, provided);
}
