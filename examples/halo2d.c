/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */

/* Jacobi relaxation on a 2D grid, with a stream-triggered halo exchange in each step.
 *
 * Each rank owns rows x columns points. A step packs the four edges, puts each into the window of the
 * neighbour on that side, and relaxes all points. Points beyond the grid are 0. The result is compared
 * with a serial computation of the whole grid. Start it as ring.c says. */
#include <mpix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rows = 24, columns = 40, longest = 40, steps = 50 };
enum side { north, south, west, east, sides };
typedef double edges[sides][longest];

struct field { /* points 0 .. height - 1, 0 .. width - 1, with a border of one point around them */
  int height, width;
  double *now, *next;
};

static double* at(const struct field* f, int r, int c) { return f->now + (r + 1) * (f->width + 2) + c + 1; }

/* Initial values; row and column: of the first point in the whole grid. The border is 0. */
static struct field make_field(int height, int width, int row, int column) {
  const size_t points = (size_t)(height + 2) * (width + 2);
  struct field f = {height, width, calloc(points, sizeof(double)), calloc(points, sizeof(double))};
  if (!f.now || !f.next) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int r = 0; r < height; ++r)
    for (int c = 0; c < width; ++c) *at(&f, r, c) = ((row + r) * 31 + (column + c) * 17) % 101;
  return f;
}

static void relax(struct field* f) {
  for (int r = 0; r < f->height; ++r)
    for (int c = 0; c < f->width; ++c) {
      const double* p = at(f, r, c);
      f->next[p - f->now] = 0.25 * (p[-f->width - 2] + p[f->width + 2] + p[-1] + p[1]);
    }
  double* done = f->next;
  f->next = f->now;
  f->now = done;
}

/* The block of one rank, and its two kernels. They run on the stream, after all that was enqueued before. */
struct block {
  struct field field;
  edges out; /* my edges: the origin buffers */
  edges* in; /* my neighbours' edges: the window */
};

static void pack(void* argument) {
  struct block* b = argument;
  for (int c = 0; c < columns; ++c) b->out[north][c] = *at(&b->field, 0, c);
  for (int c = 0; c < columns; ++c) b->out[south][c] = *at(&b->field, rows - 1, c);
  for (int r = 0; r < rows; ++r) b->out[west][r] = *at(&b->field, r, 0);
  for (int r = 0; r < rows; ++r) b->out[east][r] = *at(&b->field, r, columns - 1);
}

static void unpack_and_relax(void* argument) {
  struct block* b = argument;
  for (int c = 0; c < columns; ++c) *at(&b->field, -1, c) = (*b->in)[north][c];
  for (int c = 0; c < columns; ++c) *at(&b->field, rows, c) = (*b->in)[south][c];
  for (int r = 0; r < rows; ++r) *at(&b->field, r, -1) = (*b->in)[west][r];
  for (int r = 0; r < rows; ++r) *at(&b->field, r, columns) = (*b->in)[east][r];
  relax(&b->field);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int open_ends[2] = {0, 0}, length[sides] = {columns, columns, rows, rows};
  int size, rank, dims[2] = {0, 0}, place[2], neighbour[sides], present[sides], count = 0;
  MPI_Comm grid;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, open_ends, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, place);
  MPI_Cart_shift(grid, 0, 1, &neighbour[north], &neighbour[south]);
  MPI_Cart_shift(grid, 1, 1, &neighbour[west], &neighbour[east]);
  for (int side = 0; side < sides; ++side)
    if (neighbour[side] != MPI_PROC_NULL) present[count++] = neighbour[side];
  MPI_Group all, neighbours; /* who puts to me, and to whom I put */
  MPI_Comm_group(grid, &all);
  MPI_Group_incl(all, count, present, &neighbours);

  struct block b = {.field = make_field(rows, columns, place[0] * rows, place[1] * columns)};
  MPI_Info info; /* asks for memory that the other ranks can map */
  MPI_Win win;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
  MPI_Win_allocate(sizeof(edges), sizeof(double), info, grid, &b.in, &win);
  memset(b.in, 0, sizeof(edges)); /* nobody puts anything here before my first post */
  MPIX_Host_stream stream;
  MPIX_Host_stream_create(&stream);

  for (int step = 0; step < steps; ++step) {
    /* In stream order after the step before has read the halo: it may be overwritten. */
    MPIX_Win_post_stream(neighbours, win, stream);
    MPIX_Host_stream_launch(stream, pack, &b);
    MPI_Win_start(neighbours, MPIX_MODE_STREAM, win);
    for (int side = 0; side < sides; ++side) /* side ^ 1: my northern neighbour has me in the south */
      MPI_Put(b.out[side], length[side], MPI_DOUBLE, neighbour[side], (side ^ 1) * longest, length[side], MPI_DOUBLE,
              win); /* to MPI_PROC_NULL: nothing */
    MPIX_Win_complete_wait_stream(win, stream);
    MPIX_Host_stream_launch(stream, unpack_and_relax, &b);
  }
  MPIX_Host_stream_synchronize(stream);

  struct field whole = make_field(dims[0] * rows, dims[1] * columns, 0, 0);
  for (int step = 0; step < steps; ++step) relax(&whole);
  int wrong = 0;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      wrong |= *at(&b.field, r, c) != *at(&whole, place[0] * rows + r, place[1] * columns + c);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_LOR, grid);
  if (rank == 0) printf("halo2d: %d x %d ranks, %s\n", dims[0], dims[1], wrong ? "wrong result" : "OK");

  MPIX_Host_stream_destroy(&stream);
  MPI_Win_free(&win);
  MPI_Info_free(&info);
  MPI_Group_free(&neighbours);
  MPI_Group_free(&all);
  MPI_Comm_free(&grid);
  free(whole.next), free(whole.now);
  free(b.field.next), free(b.field.now);
  MPI_Finalize();
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
