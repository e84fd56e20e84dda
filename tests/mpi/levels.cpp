// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What MPI says of threads: levels [0 to 3], the argument of MPI_Init_thread; without it MPI_Init is called. A program
// that knows nothing of libmpix: tests/mpi/levels.sh compares what it prints with and without it.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char* argv[]) {
  constexpr int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
  int provided = -1;
  if (argc > 1)
    MPI_Init_thread(&argc, &argv, levels[std::atoi(argv[1])], &provided);
  else
    MPI_Init(&argc, &argv);
  int asked = -1, main_thread = 0, rank = 0;
  MPI_Query_thread(&asked);
  MPI_Is_thread_main(&main_thread);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    std::printf("argument %s: provided %d, asked %d, main thread %d\n", argc > 1 ? argv[1] : "none", provided, asked,
                main_thread);
  MPI_Finalize();
  return 0;
}
