// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// A process dies while kernels have to do with it; the other one, on its own GPU, must be told of it by its time-out,
// and its GPU must go on:
//
//   MPIX_TIMEOUT=2 MPIX_ON_TIMEOUT=error mpiexec -n 2 killed origin [ROUND]
//     rank 1 dies in the midst of a put of 64 MiB, some 0 to 300 µs (as ROUND says) after it was launched
//   … killed target [ROUND]
//     rank 1 dies while a put to it is under way (even rounds), or waits for its post (odd ones)
//
// Each rank is a child of the process that mpiexec started, which does not see the death, and ends when both have
// ended.
#include <cuda_runtime.h>
#include <mpi.h>
#include <mpix.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "support/abort.h"

namespace {

constexpr int survivor = 0, victim = 1;
constexpr std::size_t bytes = std::size_t{64} << 20;

bool exists(const std::string& path) { return std::ifstream(path).good(); }

/// What mpiexec sees of a rank.
int stay_until_both_have_ended(pid_t child, const std::string& ended) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    for (int tenths = 0; tenths < 600 && !exists(ended); ++tenths) usleep(100000);
    unlink(ended.c_str());
    return 0;
  }
  std::ofstream(ended) << "ended\n";
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Not those of MPI, which might wait for the dead.
[[noreturn]] void end(bool good, const char* what) {
  std::printf("survivor: %s%s\n", good ? "" : "FAILED: ", what);
  std::fflush(stdout);
  _exit(good ? 0 : 1);
}

class Exchange {
 public:
  Exchange() {
    CHECK_CUDA(cudaMalloc(&memory_, bytes));
    CHECK_CUDA(cudaMalloc(&source_, bytes));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK_MPI(MPI_Win_create(memory_, MPI_Aint(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    CHECK_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    MPI_Group world;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (const int other : {0, 1}) CHECK_MPI(MPI_Group_incl(world, 1, &other, &group_[other]));
  }
  int post(int origin) { return MPIX_Win_post_stream(group_[origin], window_, stream_); }
  int wait() { return MPIX_Win_wait_stream(window_, stream_); }
  int put(int target) {
    int code = MPI_Win_start(group_[target], MPIX_MODE_STREAM, window_);
    if (code == MPI_SUCCESS) code = MPI_Put(source_, int(bytes), MPI_BYTE, target, 0, int(bytes), MPI_BYTE, window_);
    if (code == MPI_SUCCESS) code = MPIX_Win_complete_stream(window_, stream_);
    return code;
  }
  void synchronize() { CHECK_CUDA(cudaStreamSynchronize(stream_)); }
  /// The GPU does what it is told.
  bool works() {
    unsigned char last = 0;
    return cudaMemsetAsync(memory_, 0x5a, bytes, stream_) == cudaSuccess &&
           cudaMemcpyAsync(&last, static_cast<char*>(memory_) + bytes - 1, 1, cudaMemcpyDeviceToHost, stream_) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream_) == cudaSuccess && last == 0x5a;
  }

 private:
  void *memory_ = nullptr, *source_ = nullptr;
  cudaStream_t stream_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_[2] = {};
};

void spin_micros(int micros) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(micros);
  while (std::chrono::steady_clock::now() < until) {
  }
}

int run(const char* scenario, int round) {
  int rank = 0, ranks = 0, gpus = 0, level = 0;
  CHECK_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  if (ranks != 2) {
    std::printf("skipped: for 2 ranks\n");
    return 77;
  }
  signal(SIGUSR1, SIG_IGN);  // how MPICH's mpiexec tells of a death
  alarm(50);
  CHECK_CUDA(cudaGetDeviceCount(&gpus));
  CHECK_CUDA(cudaSetDevice(rank % gpus));
  Exchange exchange;
  for (int k = 0; k < 3; ++k) {  // once as it should be
    CHECK_MPI(exchange.post(1 - rank));
    CHECK_MPI(exchange.put(1 - rank));
    CHECK_MPI(exchange.wait());
    exchange.synchronize();
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  const bool origin_dies = std::strcmp(scenario, "origin") == 0;
  const int delay = round * 37 % 300;
  if (rank == victim) {
    if (origin_dies)
      (void)exchange.put(survivor);
    else if (round % 2 == 0)
      (void)exchange.post(survivor);
    spin_micros(delay);
    kill(getpid(), SIGKILL);
  }
  int code = MPI_SUCCESS;
  if (origin_dies) {
    code = exchange.post(victim);
    if (code == MPI_SUCCESS) code = exchange.wait();
  } else {
    code = exchange.put(victim);
  }
  if (code != MPI_SUCCESS) end(false, "the epoch was refused");
  exchange.synchronize();
  if (!exchange.works()) end(false, "the GPU does not go on");
  // The data may all have come. If not, the window is broken, and says so.
  const int next = origin_dies ? exchange.post(victim) : exchange.put(victim);
  if (!exchange.works()) end(false, "the GPU does not go on after that");
  const bool is_told = next != MPI_SUCCESS;
  if (!origin_dies && round % 2 != 0 && !is_told) end(false, "a put without a post has ended, and nobody was told");
  end(true, is_told ? "was told" : "the epoch had ended before");
}

}  // namespace

int main(int argc, char** argv) {
  const char* const scenario = argc > 1 ? argv[1] : "origin";
  const int round = argc > 2 ? std::atoi(argv[2]) : 0;
  const char* const scratch = std::getenv("TMPDIR");
  const std::string ended = std::string(scratch ? scratch : "/tmp") + "/mpix-killed-test." + std::to_string(getppid());
  const pid_t child = fork();
  if (child < 0) return 1;
  return child == 0 ? run(scenario, round) : stay_until_both_have_ended(child, ended);
}
