// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// collectives_killed SCENARIO: the last rank is killed, before a collective on a stream or in the midst of one. The
// others must find out, in the time that MPIX_TIMEOUT gives them, and go on with each other. Started by
// collectives_killed.sh, without Catch2: its ranks end together.
#include <mpix.h>
#include <mpix_collectives.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/awake.h"

namespace {

int rank = 0, size = 0, victim = 0;
std::atomic<const char*> doing{"the start"};

[[noreturn]] void fail(const std::string& what) {
  std::printf("survivor %d: FAILED at %s: %s\n", rank, doing.load(), what.c_str());
  std::fflush(stdout);
  _exit(1);
}
void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/// A communicator, its stream, and sums on it.
class Sums {
 public:
  Sums(MPI_Comm comm, int count) : comm_(comm), send_(static_cast<std::size_t>(count)), recv_(send_.size()) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &me_);
    MPI_Comm_size(comm_, &ranks_);
    MPIX_Host_stream_create(&stream_);
  }

  int enqueue() {
    return MPIX_Allreduce_stream(send_.data(), recv_.data(), static_cast<int>(send_.size()), MPI_LONG, MPI_SUM, comm_,
                                 stream_);
  }
  int bcast(int root) {
    return MPIX_Bcast_stream(send_.data(), static_cast<int>(send_.size()), MPI_LONG, root, comm_, stream_);
  }
  int synchronize() { return MPIX_Host_stream_synchronize(stream_); }
  int both() {
    const int code = enqueue();
    const int synchronized = synchronize();
    return code != MPI_SUCCESS ? code : synchronized;
  }

  /// Sums that have to work, one at a time, with other data each.
  void work(int sums) {
    for (int k = 0; k < sums; ++k) {
      ++number_;
      for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = number_ * (me_ + 1) + static_cast<long>(i);
      const int code = both();
      require(code == MPI_SUCCESS, "a sum of the living: " + text_of(code));
      const long all = number_ * ranks_ * (ranks_ + 1) / 2;
      for (std::size_t i = 0; i < send_.size(); ++i)
        require(recv_[i] == all + ranks_ * static_cast<long>(i), "a wrong sum");
    }
  }

  int free() { return MPI_Comm_free(&comm_); }

 private:
  MPI_Comm comm_;
  int me_ = 0, ranks_ = 0;
  MPIX_Host_stream stream_ = nullptr;
  std::vector<long> send_, recv_;
  long number_ = 0;
};

}  // namespace

int main(int argc, char* argv[]) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? std::atoi(argv[2]) : 10;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  victim = size - 1;
  const char* const patience = std::getenv("MPIX_TIMEOUT");
  const double limit = patience ? std::atof(patience) : 1;
  const test::AwakeClock clock(test::ends_after(30 + 10 * limit, &doing));
  signal(SIGUSR1, SIG_IGN);  // how MPICH's mpiexec tells of it, which would end the program

  MPI_Comm all, survivors;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_set_name(all, "pressure");
  MPI_Comm_split(MPI_COMM_WORLD, rank == victim, rank, &survivors);
  Sums shared(all, count), others(survivors, count);
  doing = "the sums before";
  shared.work(3);
  if (rank != victim) others.work(3);
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == victim) {
    if (scenario == "before") die();
    if (scenario == "waiting" || scenario == "root") {
      usleep(300000);
      die();
    }
    std::thread([] {  // in the midst of one
      usleep(100000);
      die();
    })
        .detach();
    for (;;) shared.both();
  }

  doing = "the sums with the dead";
  int code = MPI_SUCCESS;
  double last = clock.seconds();
  if (scenario == "root") {
    code = shared.bcast(victim);
    const int synchronized = shared.synchronize();
    if (code == MPI_SUCCESS) code = synchronized;
  } else {
    while (code == MPI_SUCCESS) {
      last = clock.seconds();
      code = shared.both();
    }
  }
  const double took = clock.seconds() - last;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  require(error_class == MPI_ERR_RMA_SYNC, "the error class of: " + text_of(code));
  code = shared.enqueue();
  MPI_Error_class(code, &error_class);
  require(error_class == MPI_ERR_RMA_SYNC, "the next call: " + text_of(code));
  // In the midst of a call a survivor may have all of it from the dead, and another not: it waits for that one then.
  const bool names_it = text_of(code).find("rank " + std::to_string(victim)) != std::string::npos;
  require(names_it || scenario == "midst", "who it is: " + text_of(code));
  require(took < 3 * limit + 2, "took " + std::to_string(took) + " s");
  std::printf("survivor %d: after %.2f s: %s\n", rank, took, text_of(code).c_str());
  if (names_it) std::printf("survivor %d names the dead\n", rank);

  doing = "MPI_Barrier";
  MPI_Barrier(survivors);  // they have not noticed at the same time
  doing = "the sums of the living";
  others.work(20);
  doing = "MPI_Comm_free";
  const double freeing = clock.seconds();
  require(shared.free() == MPI_SUCCESS, "MPI_Comm_free");
  const double freed = clock.seconds() - freeing;
  doing = "the sums after that";
  others.work(20);
  doing = "the end";
  MPI_Barrier(survivors);
  require(others.free() == MPI_SUCCESS, "MPI_Comm_free");
  std::printf("survivor %d: ok; freed in %.2f s\n", rank, freed);
  std::fflush(stdout);
  _exit(0);  // MPI_Finalize would wait for the dead
}
