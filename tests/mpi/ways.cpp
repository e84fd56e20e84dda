// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Which way collectives on streams take, and whether they are right: see ways.sh.
//
//   mpiexec -n N ways [-i KEY VALUE]... [-r KEY VALUE]... BYTES...
//
// All-reduces of BYTES each, on a communicator that is prepared with these keys; with -r, of rank 0 only. Prints "BYTES
// WAY" for each, or the error of the preparation.
#include <mpi.h>
#include <mpix.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/abort.h"

namespace {

MPIX_Comm_stats stats_of(MPI_Comm comm) {
  MPIX_Comm_stats stats{};
  CHECK_MPI(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
  return stats;
}

bool is_right(MPI_Comm comm, int bytes, MPIX_Host_stream stream) {
  int rank = 0, size = 0;
  CHECK_MPI(MPI_Comm_rank(comm, &rank));
  CHECK_MPI(MPI_Comm_size(comm, &size));
  const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(long);
  std::vector<long> send(count), recv(count, -1);
  for (std::size_t i = 0; i < count; ++i) send[i] = rank + static_cast<long>(i);
  for (int turn = 0; turn < 3; ++turn)
    CHECK_MPI(
        MPIX_Allreduce_stream(send.data(), recv.data(), static_cast<int>(count), MPI_LONG, MPI_SUM, comm, stream));
  CHECK_MPI(MPIX_Host_stream_synchronize(stream));
  for (std::size_t i = 0; i < count; ++i)
    if (recv[i] != size * (size - 1) / 2 + size * static_cast<long>(i)) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_MPI(MPI_Init(&argc, &argv));
  int rank = 0;
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI_Comm comm = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  int next = 1;
  for (; next + 2 < argc && argv[next][0] == '-'; next += 3)
    if (argv[next][1] == 'i' || rank == 0) CHECK_MPI(MPI_Info_set(info, argv[next + 1], argv[next + 2]));
  const int error = MPIX_Comm_prepare_stream(comm, info);
  CHECK_MPI(MPI_Info_free(&info));
  int status = 0;
  if (error != MPI_SUCCESS) {
    std::printf("rank %d: %s\n", rank, support::mpi_error_text(error));
  } else {
    MPIX_Host_stream stream = nullptr;
    CHECK_MPI(MPIX_Host_stream_create(&stream));
    for (; next < argc; ++next) {
      const MPIX_Comm_stats before = stats_of(comm);
      if (!is_right(comm, std::atoi(argv[next]), stream)) status = 1;
      const MPIX_Comm_stats after = stats_of(comm);
      const bool lines = after.calls_lines == before.calls_lines + 3,
                 direct = after.calls_direct == before.calls_direct + 3,
                 chosen = after.calls_chosen == before.calls_chosen + 3;
      if (rank == 0)
        std::printf("%s %s\n", argv[next], lines ? "lines" : direct ? "direct" : chosen ? "chosen" : "neither");
    }
    CHECK_MPI(MPIX_Host_stream_destroy(&stream));
  }
  if (status) std::printf("rank %d: wrong\n", rank);
  CHECK_MPI(MPI_Comm_free(&comm));
  CHECK_MPI(MPI_Finalize());
  return status;
}
