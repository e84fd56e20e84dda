/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Compiled, not run: mpix.h is C11, may be included twice, and declares these names. */
#include <mpix.h>

_Static_assert(MPIX_MODE_STREAM != 0, "an assertion of its own");
_Static_assert((MPIX_MODE_STREAM &
                (MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED)) == 0,
               "it can be combined with those of MPI");

int (*const post)(MPI_Group, MPI_Win, void*) = MPIX_Win_post_stream;
int (*const complete)(MPI_Win, void*) = MPIX_Win_complete_stream;
int (*const wait)(MPI_Win, void*) = MPIX_Win_wait_stream;
int (*const complete_wait)(MPI_Win, void*) = MPIX_Win_complete_wait_stream;
int (*const query)(int*) = MPIX_Query_stream_rma;
int (*const get_drequest)(MPI_Request, MPIX_Drequest*) = MPIX_Get_drequest;
int (*const free_drequest)(MPIX_Drequest*) = MPIX_Free_drequest;

int use_host_stream(MPI_Win win, MPIX_Host_stream stream);
int use_host_stream(MPI_Win win, MPIX_Host_stream stream) {
  return MPIX_Win_wait_stream(win, stream); /* converts without a cast */
}
