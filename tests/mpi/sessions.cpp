// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A program that never calls MPI_Init: it has a session of MPI alone. Stream epochs work, and MPIX_Query_stream_rma
// says so from the session on.
#include <mpi.h>
#include <mpix.h>

#include <cstdio>
#include <cstdlib>

#include "config.h"

#ifdef HAVE_MPI_SESSION_INIT

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

int errors_of_comm = 0;
extern "C" void note_error(MPI_Comm*, int* code, ...) {
  int its_class = MPI_SUCCESS;
  MPI_Error_class(*code, &its_class);
  if (its_class == MPI_ERR_COUNT) ++errors_of_comm;
}

bool is_active() {
  int active = -1;
  require(MPIX_Query_stream_rma(&active) == MPI_SUCCESS, "MPIX_Query_stream_rma");
  return active == 1;
}

}  // namespace

int main() {
  require(!is_active(), "not active before the session");
  MPI_Session session = MPI_SESSION_NULL;
  require(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS, "MPI_Session_init");
  // The first thing that libmpix hears: no window has told it how many ranks there are.
  MPI_Info kind = MPI_INFO_NULL;
  MPI_Info_create(&kind);
  MPI_Info_set(kind, "mpi_memory_alloc_kinds", "mpix:device");
  int* early = nullptr;
  require(MPI_Alloc_mem(sizeof *early, kind, &early) == MPI_SUCCESS && early, "MPI_Alloc_mem before a window");
  MPI_Info_free(&kind);
  require(is_active(), "active from the session on");
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
  MPI_Comm_create_from_group(world, "libmpix", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  MPI_Group origins = MPI_GROUP_NULL, targets = MPI_GROUP_NULL;
  MPI_Group_incl(world, 1, &left, &origins);
  MPI_Group_incl(world, 1, &right, &targets);

  int* memory = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  MPIX_Host_stream stream = nullptr;
  MPIX_Host_stream_create(&stream);
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == 0) {
      memory = early;
      MPI_Win_create(memory, sizeof *memory, 1, MPI_INFO_NULL, comm, &win);
    } else {
      MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, comm, &memory, &win);
    }
    for (int step = 1; step <= 20; ++step) {
      const int value = 100 * step + rank;
      MPIX_Win_post_stream(origins, win, stream);
      MPI_Win_start(targets, MPIX_MODE_STREAM, win);
      MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win);
      MPIX_Win_complete_wait_stream(win, stream);
      MPIX_Host_stream_synchronize(stream);
      require(*memory == 100 * step + left, "the neighbour's value");
    }
    MPI_Win_free(&win);
  }
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(note_error, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  double sum = 0;
  require(MPIX_Allreduce_stream(MPI_IN_PLACE, &sum, -1, MPI_DOUBLE, MPI_SUM, comm, stream) != MPI_SUCCESS &&
              errors_of_comm == 1,
          "a wrong call is told to the communicator's handler");
  MPI_Errhandler_free(&handler);
  MPIX_Channel channel = MPIX_CHANNEL_NULL;
  require(MPIX_Channel_create(1, 0, MPI_INFO_NULL, &channel) == MPI_SUCCESS, "MPIX_Channel_create");
  require(MPIX_Channel_free(&channel) == MPI_SUCCESS, "MPIX_Channel_free");
  MPIX_Halo halo = MPIX_HALO_NULL;
  require(MPIX_Halo_create(comm, 0, nullptr, MPI_INFO_NULL, &halo) == MPI_SUCCESS, "MPIX_Halo_create");
  require(MPIX_Halo_free(&halo) == MPI_SUCCESS, "MPIX_Halo_free");
  MPIX_Host_stream_destroy(&stream);
  require(MPI_Free_mem(early) == MPI_SUCCESS, "MPI_Free_mem");
  MPI_Group_free(&targets);
  MPI_Group_free(&origins);
  MPI_Group_free(&world);
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  return 0;
}

#else

int main() {
  std::puts("skipped: this MPI has no sessions");
  return 77;
}

#endif
