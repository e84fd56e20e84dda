/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Compiled, and refused: mpi.h seems to be that of another MPI than the one that libmpix is configured for. */
#include <mpi.h>
#ifdef OPEN_MPI
#undef OPEN_MPI
#else
#define OPEN_MPI 1
#endif
#include <mpix.h>
#if !MPIX_FOR_OPEN_MPI && !MPIX_FOR_MPICH
#error "configure knows nothing of this MPI, and mpix.h cannot tell"
#endif
