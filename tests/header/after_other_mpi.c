/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Compiled, not run: mpix.h defers to an mpi.h that has stream-triggered RMA of its own. */
#include <mpi.h>
#define MPIX_MODE_STREAM 0x4242
typedef struct other_stream* other_stream;
int MPIX_Win_post_stream(MPI_Group group, MPI_Win win, other_stream stream);
int MPIX_Win_complete_stream(MPI_Win win, other_stream stream);
int MPIX_Win_wait_stream(MPI_Win win, other_stream stream);

#include <mpix.h>

_Static_assert(MPIX_MODE_STREAM == 0x4242, "the other one's");
int (*const post)(MPI_Group, MPI_Win, other_stream) = MPIX_Win_post_stream;
int (*const complete_wait)(MPI_Win, void*) = MPIX_Win_complete_wait_stream;
