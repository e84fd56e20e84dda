/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Loaded, this makes a program look like one with a Fortran interface of MPI. */
void mpi_group_free_(int* group, int* error);

__attribute__((visibility("default"))) void mpi_group_free_(int* group, int* error) {
  (void)group;
  (void)error;
  __builtin_trap(); /* nobody calls it */
}
