/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */

/* The ring of stream epochs: each rank puts to its right neighbour and is put to by its left one.
 *
 *     mpicc -o ring ring.c -lmpix
 *     mpiexec -n 4 ./ring [iterations]
 *
 * All iterations are enqueued before the first need have run; the only synchronization is at the end.
 * No return codes are looked at: the default error handlers end the program with a message.
 * The stream is a host stream: on a machine with a GPU, run with MPIX_DEVICE=host. */
#include <mpix.h>
#include <stdio.h>
#include <stdlib.h>

enum { length = 1000 };

/* What the kernels work on. They run one after the other, so they may count for themselves. */
struct ring {
  int rank, left;
  int filled, checked; /* iterations so far */
  long wrong;
  double* out;      /* origin buffer: read by the put */
  const double* in; /* window: written by the left neighbour's put */
};

static double value(int rank, int iteration, int i) { return rank * 1e6 + iteration * 1e3 + i; }

static void fill(void* argument) {
  struct ring* ring = argument;
  for (int i = 0; i < length; ++i) ring->out[i] = value(ring->rank, ring->filled, i);
  ++ring->filled;
}

static void check(void* argument) {
  struct ring* ring = argument;
  for (int i = 0; i < length; ++i) ring->wrong += ring->in[i] != value(ring->left, ring->checked, i);
  ++ring->checked;
}

/* The group of one rank of MPI_COMM_WORLD. */
static MPI_Group group_of(int rank) {
  MPI_Group world, group;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &rank, &group);
  MPI_Group_free(&world);
  return group;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, active;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPIX_Query_stream_rma(&active);
  if (!active) {
    fprintf(stderr, "ring: libmpix is not in front of MPI (link with mpicc ... -lmpix)\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const int iterations = argc > 1 ? atoi(argv[1]) : 100;
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;

  /* Window memory that the other ranks can map: large puts then need one copy. */
  MPI_Info info;
  MPI_Win win;
  double* in;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
  MPI_Win_allocate(length * sizeof(double), sizeof(double), info, MPI_COMM_WORLD, &in, &win);
  MPI_Info_free(&info);

  struct ring ring = {.rank = rank, .left = left, .in = in};
  ring.out = malloc(length * sizeof *ring.out);
  if (!ring.out) MPI_Abort(MPI_COMM_WORLD, 1);

  MPIX_Host_stream stream;
  MPIX_Host_stream_create(&stream);
  MPI_Group origins = group_of(left);
  MPI_Group targets = group_of(right);

  for (int iteration = 0; iteration < iterations; ++iteration) {
    /* In stream order after the check of the iteration before: the window may be overwritten. */
    MPIX_Win_post_stream(origins, win, stream);
    MPIX_Host_stream_launch(stream, fill, &ring);
    MPI_Win_start(targets, MPIX_MODE_STREAM, win);
    MPI_Put(ring.out, length, MPI_DOUBLE, right, 0, length, MPI_DOUBLE, win);
    MPIX_Win_complete_stream(win, stream);
    MPIX_Win_wait_stream(win, stream);
    MPIX_Host_stream_launch(stream, check, &ring);
  }
  MPIX_Host_stream_synchronize(stream);

  long wrong = 0;
  MPI_Allreduce(&ring.wrong, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    if (wrong)
      printf("ring: %d ranks, %ld wrong values\n", size, wrong);
    else
      printf("ring: %d ranks, OK\n", size);
  }

  MPI_Group_free(&targets);
  MPI_Group_free(&origins);
  MPIX_Host_stream_destroy(&stream);
  MPI_Win_free(&win);
  free(ring.out);
  MPI_Finalize();
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
