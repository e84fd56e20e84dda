// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A program that has named MPI before libmpix to its linker: MPI's calls are not intercepted, and what libmpix adds to
// them says so. Without Catch2, as tests/support is linked the other way round.
#include <mpix.h>
#include <mpix_collectives.h>

#include <cstdio>
#include <string>

namespace {

int failures = 0, handled = 0;

void check(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

extern "C" void note(MPI_Comm*, int*, ...) { ++handled; }

#ifdef MPICH_VERSION
constexpr bool knows_class = false;  // by libmpix's own MPI_Error_class alone, which this program has not either
#else
constexpr bool knows_class = true;
#endif

void is_refused(const char* call, int code) {
  static int calls = 0;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int error_class = MPI_SUCCESS, length = 0;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  check(error_class == MPI_ERR_UNSUPPORTED_OPERATION || !knows_class, std::string(call) + ": class: " + text);
  check(std::string(text).find(call) == 0, std::string(call) + " is not named: " + text);
  check(std::string(text).find("does not stand in front of MPI") != std::string::npos, std::string("text: ") + text);
  check(handled == ++calls, std::string(call) + ": the error handler");
}

}  // namespace

int main(int argc, char* argv[]) {
  MPI_Init(&argc, &argv);
  int rank = 0, active = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(note, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  check(MPIX_Query_stream_rma(&active) == MPI_SUCCESS && active == 0, "it takes itself for active");
  MPIX_Host_stream stream = nullptr;
  MPIX_Host_stream_create(&stream);
  int in[8] = {}, out[8] = {};
  const MPI_Comm comm = MPI_COMM_WORLD;
  is_refused("MPIX_Barrier_stream", MPIX_Barrier_stream(comm, stream));
  is_refused("MPIX_Bcast_stream", MPIX_Bcast_stream(in, 1, MPI_INT, 0, comm, stream));
  is_refused("MPIX_Reduce_stream", MPIX_Reduce_stream(in, out, 1, MPI_INT, MPI_SUM, 0, comm, stream));
  is_refused("MPIX_Allreduce_stream", MPIX_Allreduce_stream(in, out, 1, MPI_INT, MPI_SUM, comm, stream));
  is_refused("MPIX_Reduce_scatter_block_stream",
             MPIX_Reduce_scatter_block_stream(in, out, 1, MPI_INT, MPI_SUM, comm, stream));
  is_refused("MPIX_Allgather_stream", MPIX_Allgather_stream(in, 1, MPI_INT, out, 1, MPI_INT, comm, stream));
  is_refused("MPIX_Alltoall_stream", MPIX_Alltoall_stream(in, 1, MPI_INT, out, 1, MPI_INT, comm, stream));
  is_refused("MPIX_Comm_prepare_stream", MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  is_refused("MPIX_Comm_attach", MPIX_Comm_attach(comm, in, sizeof in));
  is_refused("MPIX_Comm_detach", MPIX_Comm_detach(comm, in));
  if (stream) MPIX_Host_stream_destroy(&stream);
  MPI_Errhandler_free(&handler);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) std::printf("%d failures\n", all);
  return all > 0;
}
