// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Calls on communicators that the program neither frees nor waits for: MPI_Finalize does.
//
//   collectives_left [broken|differ|early|unheard|roots]
//
// broken: rank 1 does not make a call; the program goes on for a while after MPI_Finalize. differ: rank 1 makes another
// one; each rank is told, in MPI_Finalize at the latest. early: then the end of that communicator has the library look
// at all waits; one that is short is not told of. unheard: rank 1 alone makes calls in which it has nobody to wait for;
// each rank is a node, so it waits at the end, and says for whom. roots:
// each is a root, and they are told in MPI_Finalize.
#include <mpix.h>
#include <mpix_collectives.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <thread>

namespace {

constexpr int calls = 30;

extern "C" void nap(void*) { usleep(20000); }

struct Chain {
  MPI_Comm comm = MPI_COMM_NULL;
  MPIX_Host_stream stream = nullptr;
  long mine = 1, sum = 0, gathered[64] = {};

  void enqueue() {
    MPIX_Host_stream_create(&stream);
    for (int i = 0; i < calls; ++i) {
      MPIX_Host_stream_launch(stream, nap, nullptr);
      MPIX_Allreduce_stream(i == 0 ? &mine : MPI_IN_PLACE, &sum, 1, MPI_LONG, i == 0 ? MPI_SUM : MPI_MAX, comm, stream);
      MPIX_Allgather_stream(&sum, 1, MPI_LONG, gathered, 1, MPI_LONG, comm, stream);
    }
  }
  bool is_right(int size) const {
    for (int i = 0; i < size; ++i)
      if (gathered[i] != size) return false;
    return sum == size;
  }
};

/// A rank that has waited for rank 1 knows that the calls are over; and nobody looks at them after MPI_Finalize.
int leave_broken(int rank) {
  static Chain chain;
  bool told = rank == 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &chain.comm);
  MPIX_Comm_prepare_stream(chain.comm, MPI_INFO_NULL);
  if (rank != 1) {
    MPIX_Host_stream_create(&chain.stream);
    MPIX_Allreduce_stream(&chain.mine, &chain.sum, 1, MPI_LONG, MPI_SUM, chain.comm, chain.stream);
    told = MPIX_Host_stream_synchronize(chain.stream) != MPI_SUCCESS;
  }
  MPI_Comm_free(&chain.comm);
  MPI_Finalize();
  usleep(1500000);
  if (!told) std::printf("rank %d: FAILED: a wait for rank 1 ended well\n", rank);
  return told ? 0 : 1;
}

/// What a rank's own process writes to stderr meanwhile.
class Errors {
 public:
  Errors() : own_(dup(STDERR_FILENO)), file_(std::tmpfile()) { dup2(fileno(file_), STDERR_FILENO); }
  const char* end() {
    static char said[1 << 16];
    dup2(own_, STDERR_FILENO);
    std::rewind(file_);
    (void)!std::fread(said, 1, sizeof said - 1, file_);
    return said;
  }

 private:
  const int own_;
  std::FILE* const file_;
};

/// The second call is an error where the first is known to be over.
void call_differently(Chain& chain, int rank) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &chain.comm);
  MPIX_Comm_prepare_stream(chain.comm, MPI_INFO_NULL);
  MPIX_Host_stream_create(&chain.stream);
  MPIX_Allreduce_stream(chain.gathered, &chain.gathered[2], rank == 1 ? 2 : 1, MPI_LONG, MPI_SUM, chain.comm,
                        chain.stream);
  MPIX_Allreduce_stream(&chain.mine, &chain.sum, 1, MPI_LONG, MPI_SUM, chain.comm, chain.stream);
}

int leave_different(int rank) {
  static Chain chain;
  Errors errors;
  call_differently(chain, rank);
  MPI_Finalize();
  const char* const said = errors.end();
  const bool told = std::strstr(said, "call different things");
  if (!told) std::printf("rank %d: FAILED: it was not told that calls differ: %s\n", rank, said);
  return told ? 0 : 1;
}

/// Each rank takes itself for the root of a broadcast, and so hears from nobody.
int leave_roots(int rank) {
  static Chain chain, well;
  Errors errors;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (Chain* const each : {&chain, &well}) {
    MPI_Comm_dup(MPI_COMM_WORLD, &each->comm);
    MPI_Comm_set_name(each->comm, each == &chain ? "roots" : "well");
    MPIX_Host_stream_create(&each->stream);
    MPIX_Bcast_stream(&each->mine, 1, MPI_LONG, each == &chain ? rank : 0, each->comm, each->stream);
    (void)MPIX_Host_stream_synchronize(each->stream);
  }
  MPI_Finalize();
  const char* const said = errors.end();
  const bool told = std::strstr(said, "'roots': the ranks have called different things, or named different roots") &&
                    !std::strstr(said, "'well'");
  if (!told) std::printf("rank %d: FAILED: it was not told that roots differ: %s\n", rank, said);
  return told ? 0 : 1;
}

/// `provided`: two threads call MPI.
int wait_shortly(int rank, int provided) {
  static Chain chain;
  if (provided < MPI_THREAD_MULTIPLE) return 77;
  MPI_Comm next = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &next);
  Errors errors;
  call_differently(chain, rank);
  (void)MPIX_Host_stream_synchronize(chain.stream);
  std::thread other([] {
    usleep(200000);
    MPI_Comm_free(&chain.comm);
  });
  if (rank == 1) usleep(600000);
  MPIX_Comm_prepare_stream(next, MPI_INFO_NULL);
  other.join();
  MPI_Finalize();
  const char* const said = errors.end();
  const bool early = std::strstr(said, "waits for other ranks");
  if (early) std::printf("rank %d: FAILED: a short wait was told of: %s\n", rank, said);
  return early ? 1 : 0;
}

/// Once MPI_Comm_free waits, and once MPI_Finalize.
int leave_unheard(int rank) {
  static Chain freed, left;
  Errors errors;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (Chain* const chain : {&freed, &left}) {
    MPI_Comm_dup(MPI_COMM_WORLD, &chain->comm);
    MPI_Comm_set_name(chain->comm, chain == &freed ? "freed" : "left");
    MPIX_Comm_prepare_stream(chain->comm, MPI_INFO_NULL);
    MPIX_Host_stream_create(&chain->stream);
    if (rank == 1) MPIX_Bcast_stream(&chain->mine, 1, MPI_LONG, 1, chain->comm, chain->stream);
    (void)MPIX_Host_stream_synchronize(chain->stream);
  }
  MPI_Comm_free(&freed.comm);
  MPI_Finalize();
  const char* const said = errors.end();
  const bool told =
      rank != 1 || (std::strstr(said, "collectives of 'freed': a call waits for rank 0 (of another node)") &&
                    std::strstr(said, "collectives of 'left': a call waits for rank 0 (of another node)"));
  if (!told) std::printf("rank %d: FAILED: it was not told for whom it waits: %s\n", rank, said);
  return told ? 0 : 1;
}

}  // namespace

int main(int argc, char* argv[]) {
  static Chain first, second, alone;
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1)
    return std::strcmp(argv[1], "broken") == 0    ? leave_broken(rank)
           : std::strcmp(argv[1], "differ") == 0  ? leave_different(rank)
           : std::strcmp(argv[1], "unheard") == 0 ? leave_unheard(rank)
           : std::strcmp(argv[1], "roots") == 0   ? leave_roots(rank)
                                                  : wait_shortly(rank, provided);
  MPI_Comm_dup(MPI_COMM_WORLD, &first.comm);
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &second.comm);
  MPI_Comm_dup(MPI_COMM_SELF, &alone.comm);
  for (Chain* const chain : {&first, &second, &alone}) MPIX_Comm_prepare_stream(chain->comm, MPI_INFO_NULL);
  // in different orders, as they are different communicators
  for (Chain* const chain : {rank % 2 ? &first : &second, rank % 2 ? &second : &first, &alone}) chain->enqueue();
  MPI_Finalize();
  const bool right = first.is_right(size) && second.is_right(size) && alone.is_right(1);
  if (!right) std::printf("rank %d: FAILED: sums %ld %ld %ld\n", rank, first.sum, second.sum, alone.sum);
  return right ? 0 : 1;
}
