// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// One put an epoch between two ranks, each its own node, against the chain of triggered operations that it stands on:
// how long from the doorbell, or from the stream getting to the complete, until the other side has seen it. Both as
// half of a round trip, in one run, in turns.
#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bare.h"

namespace {

constexpr int rounds = 400, repeats = 7;

/// Ping-pong of one-put epochs, all enqueued at once.
class Epochs {
 public:
  explicit Epochs(int bytes) : bytes_(bytes), source_(static_cast<std::size_t>(bytes), 'x') {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base_, &window_);
    MPIX_Host_stream_create(&stream_);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    const int peer = 1 - rank_;
    MPI_Group_incl(world, 1, &peer, &peer_);
    MPI_Group_free(&world);
  }
  ~Epochs() {
    MPIX_Host_stream_destroy(&stream_);
    MPI_Group_free(&peer_);
    MPI_Win_free(&window_);
  }

  /// µs, the median.
  double median(int count) {
    std::vector<double> times(static_cast<std::size_t>(count) + 1);
    const auto note = [](void* p) { *static_cast<double*>(p) = MPI_Wtime(); };
    MPIX_Host_stream_launch(stream_, note, &times[0]);
    for (int i = 1; i <= count; ++i) {
      MPIX_Win_post_stream(peer_, window_, stream_);
      if (rank_ == 1) MPIX_Win_wait_stream(window_, stream_);
      MPI_Win_start(peer_, MPIX_MODE_STREAM, window_);
      MPI_Put(source_.data(), bytes_, MPI_BYTE, 1 - rank_, 0, bytes_, MPI_BYTE, window_);
      MPIX_Win_complete_stream(window_, stream_);
      if (rank_ == 0) MPIX_Win_wait_stream(window_, stream_);
      MPIX_Host_stream_launch(stream_, note, &times[static_cast<std::size_t>(i)]);
    }
    MPIX_Host_stream_synchronize(stream_);
    std::vector<double> half;
    for (std::size_t i = 1; i < times.size(); ++i) half.push_back((times[i] - times[i - 1]) / 2 * 1e6);
    std::sort(half.begin(), half.end());
    return half[half.size() / 2];
  }

 private:
  const int bytes_;
  int rank_ = 0;
  std::vector<char> source_;
  void* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPIX_Host_stream stream_ = nullptr;
  MPI_Group peer_ = MPI_GROUP_NULL;
};

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  setenv("MPIX_NODE_SIZE", "1", 1);
  setenv("MPIX_NIC", "sockets", 1);  // as the bare chain: messages of MPI would go through shared memory here
  int threads = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2 || argc > 2) {
    if (rank == 0) std::fprintf(stderr, "usage: mpiexec -n 2 chain [bytes of a put, 64]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int bytes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 64;
  std::vector<double> thread_times, poll_times, epoch_times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    {
      BareChain chain(static_cast<std::size_t>(bytes), true);
      thread_times.push_back(chain.median(rounds));
    }
    {
      BareChain chain(static_cast<std::size_t>(bytes), false);
      poll_times.push_back(chain.median(rounds));
    }
    Epochs epochs(bytes);
    epochs.median(20);
    epoch_times.push_back(epochs.median(rounds));
  }
  if (rank == 0) {
    const double thread = middle(thread_times), poll = middle(poll_times), epoch = middle(epoch_times);
    std::printf(
        "chain: a put of %d bytes from one node to another over sockets; medians of %d rounds, middle of %d "
        "turns [us]\n",
        bytes, rounds, repeats);
    std::printf("%-60s %8.1f\n", "bare chain, the provider's thread makes progress", thread);
    std::printf("%-60s %8.1f\n", "bare chain, who polls makes progress", poll);
    std::printf("%-60s %8.1f\n", "one-put epoch", epoch);
    std::printf("the epoch takes %.2f and %.2f of the chains' time\n", epoch / thread, epoch / poll);
  }
  MPI_Finalize();
  return 0;
}
