// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPI refuses to free a window, and the program's error handler leaves the call by a jump, or by an exception. The
// window goes on, nobody reports a call that is over, and it is freed in the end. Threads are one, as MPICH keeps its
// lock.
//
//   mpiexec -n N leaving        (MPIX_TIMEOUT=1)
#include <mpi.h>
#include <mpix.h>

#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/capture.h"
#include "support/slowdown.h"

namespace {

int failures = 0;
#define EXPECT(holds)                                                  \
  do {                                                                 \
    if (!(holds)) {                                                    \
      std::printf("%s:%d: expected %s\n", __FILE__, __LINE__, #holds); \
      ++failures;                                                      \
    }                                                                  \
  } while (false)

std::jmp_buf before_the_call;
extern "C" void jump(MPI_Win*, int*, ...) { std::longjmp(before_the_call, 1); }
extern "C" void throw_error(MPI_Win*, int*, ...) { throw std::runtime_error("the program's"); }

/// Whether MPI refuses, and the handler leaves.
bool jumps(MPI_Win* win) {
  if (setjmp(before_the_call) != 0) return true;
  (void)MPI_Win_free(win);
  return false;
}
bool throws(MPI_Win* win) {
  try {
    (void)MPI_Win_free(win);
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

/// A stream epoch with both neighbours in a ring.
void epoch(MPI_Win win, const long* window, int rank, int ranks, long value) {
  MPI_Group all, to, from;
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  static long source;
  source = value + rank;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &right, &to);
  MPI_Group_incl(all, 1, &left, &from);
  EXPECT(MPIX_Win_post_stream(from, win, nullptr) == MPI_SUCCESS);
  EXPECT(MPI_Win_start(to, MPIX_MODE_STREAM, win) == MPI_SUCCESS);
  EXPECT(MPI_Put(&source, 1, MPI_LONG, right, 0, 1, MPI_LONG, win) == MPI_SUCCESS);
  EXPECT(MPIX_Win_complete_stream(win, nullptr) == MPI_SUCCESS);
  EXPECT(MPIX_Win_wait_stream(win, nullptr) == MPI_SUCCESS);
  EXPECT(MPIX_Host_stream_synchronize(nullptr) == MPI_SUCCESS);
  EXPECT(*window == value + left);
  for (MPI_Group* group : {&all, &to, &from}) MPI_Group_free(group);
}

void leave_by(MPI_Win_errhandler_function* by, bool (*left)(MPI_Win*), int rank, int ranks) {
  long window = 0;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  EXPECT(MPI_Win_create(&window, sizeof window, sizeof window, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  epoch(win, &window, rank, ranks, 100);
  EXPECT(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win) == MPI_SUCCESS);
  MPI_Win_create_errhandler(by, &handler);
  MPI_Win_set_errhandler(win, handler);
  EXPECT(left(&win));
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  // The handler stays: MPICH counts it as free by now.
  EXPECT(MPI_Win_unlock(rank, win) == MPI_SUCCESS);
  test::Capture log(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500) * test::time_scale());
  const std::string said = log.end();
  EXPECT(said.find("has waited") == std::string::npos);
  epoch(win, &window, rank, ranks, 200);
  EXPECT(MPI_Win_free(&win) == MPI_SUCCESS && win == MPI_WIN_NULL);
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#ifdef MPICH
  leave_by(jump, jumps, rank, ranks);
  leave_by(throw_error, throws, rank, ranks);
#else
  std::printf("skipped: this MPI frees windows with an open epoch\n");
  (void)jump, (void)throw_error, (void)jumps, (void)throws, (void)leave_by;
  MPI_Finalize();
  return 77;
#endif
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
