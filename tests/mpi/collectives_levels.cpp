// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A program whose threads may not all call MPI: what collectives on streams combine themselves they have, and what MPI
// has to combine, in the thread of a stream, is refused.
#include <mpix.h>
#include <mpix_collectives.h>

#include <cstdio>

namespace {

int failures = 0;
void check(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

extern "C" void add(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
}

bool is_refused(int code) {
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  return error_class == MPI_ERR_UNSUPPORTED_OPERATION;
}

}  // namespace

int main(int argc, char* argv[]) {
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided == MPI_THREAD_MULTIPLE) std::printf("this MPI allows all threads, asked or not\n");
  MPIX_Host_stream stream = nullptr;
  MPIX_Host_stream_create(&stream);
  MPI_Op own;
  MPI_Op_create(add, 1, &own);
  for (int turn = 1; turn <= 3; ++turn) {
    const int mine = turn + rank;
    int sum = 0;
    const long double real = rank;
    long double reals = -1;
    check(MPIX_Allreduce_stream(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, stream) == MPI_SUCCESS, "MPI_SUM");
    if (provided != MPI_THREAD_MULTIPLE) {
      check(is_refused(MPIX_Allreduce_stream(&mine, &sum, 1, MPI_INT, own, MPI_COMM_WORLD, stream)),
            "an own operation");
      check(is_refused(MPIX_Reduce_stream(&mine, &sum, 1, MPI_INT, own, 0, MPI_COMM_WORLD, stream)), "at a root");
      check(is_refused(MPIX_Allreduce_stream(&real, &reals, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD, stream)),
            "long double");
    }
    check(MPIX_Barrier_stream(MPI_COMM_WORLD, stream) == MPI_SUCCESS, "a barrier");
    check(MPIX_Host_stream_synchronize(stream) == MPI_SUCCESS, "synchronize");
    check(sum == turn * size + size * (size - 1) / 2, "the sum");
  }
  MPI_Op_free(&own);
  MPIX_Host_stream_destroy(&stream);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) std::printf("%d failures\n", all);
  return all > 0;
}
