// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Rank 1 waits, in MPI_Win_free, for an epoch to which rank 0 comes when a large message of rank 1 has
// arrived: the call makes progress for MPI, in whatever way MPI was started, and whatever it gives threads. The rows of
// tests/options have messages that go only while their sender is in MPI.
#include <mpi.h>
#include <mpix.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "config.h"

namespace {

constexpr int message_bytes = 4 << 20;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

struct Epoch {
  MPI_Win win = MPI_WIN_NULL;
  MPIX_Host_stream stream = nullptr;
  MPI_Request sent = MPI_REQUEST_NULL;
  std::vector<char> message = std::vector<char>(message_bytes);

  void begin(MPI_Comm comm) {
    int rank = 0;
    void* memory = nullptr;
    MPI_Group all = MPI_GROUP_NULL, other = MPI_GROUP_NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_group(comm, &all);
    const int peer = 1 - rank;
    MPI_Group_incl(all, 1, &peer, &other);
    MPIX_Host_stream_create(&stream);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, &memory, &win);
    if (rank == 1) {
      require(MPIX_Win_post_stream(other, win, stream) == MPI_SUCCESS, "MPIX_Win_post_stream");
      require(MPIX_Win_wait_stream(win, stream) == MPI_SUCCESS, "MPIX_Win_wait_stream");
      MPI_Isend(message.data(), message_bytes, MPI_BYTE, 0, 0, comm, &sent);
    } else {
      MPI_Recv(message.data(), message_bytes, MPI_BYTE, 1, 0, comm, MPI_STATUS_IGNORE);
      MPI_Win_start(other, MPIX_MODE_STREAM, win);
      require(MPIX_Win_complete_stream(win, stream) == MPI_SUCCESS, "MPIX_Win_complete_stream");
    }
    MPI_Group_free(&other);
    MPI_Group_free(&all);
  }
  void end() {
    require(MPI_Win_free(&win) == MPI_SUCCESS, "MPI_Win_free");
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPIX_Host_stream_destroy(&stream);
  }
};

int with_world(int required) {
  int provided = 0, ranks = 0;
  MPI_Init_thread(nullptr, nullptr, required, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  require(ranks == 2, "two ranks");
  Epoch epoch;
  epoch.begin(MPI_COMM_WORLD);
  epoch.end();
  MPI_Finalize();
  return 0;
}

#ifdef HAVE_MPI_SESSION_INIT
int with_session(const char* level) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "thread_level", level);
  require(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS, "MPI_Session_init");
  MPI_Info_free(&info);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
  MPI_Comm_create_from_group(world, "libmpix", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&world);
  Epoch epoch;
  epoch.begin(comm);
  epoch.end();
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  MPIX_Host_stream late = nullptr;
  require(MPIX_Host_stream_create(&late) == MPI_SUCCESS, "MPIX_Host_stream_create after the session");
  require(MPIX_Host_stream_synchronize(late) == MPI_SUCCESS, "MPIX_Host_stream_synchronize after the session");
  require(MPIX_Host_stream_destroy(&late) == MPI_SUCCESS, "MPIX_Host_stream_destroy after the session");
  return 0;
}
#else
int with_session(const char*) {
  std::puts("skipped: this MPI has no sessions");
  return 77;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "serialized") return with_world(MPI_THREAD_SERIALIZED);
  if (how == "funneled") return with_world(MPI_THREAD_FUNNELED);
  if (how == "session") return with_session("MPI_THREAD_MULTIPLE");
  if (how == "single_session") return with_session("MPI_THREAD_SINGLE");
  std::fprintf(stderr, "usage: progress serialized|funneled|session|single_session\n");
  return 2;
}
