// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Stream epochs and collectives of a rank on a GPU (MPIX_DEVICE=cuda) with one on the host (MPIX_DEVICE=host): as
// between nodes. Where there is no way between nodes they are refused, on both sides, with a text:
//
//   mpiexec -n 1 env MPIX_DEVICE=cuda mixed works : -n 1 env MPIX_DEVICE=host mixed works
//   mpiexec -n 1 env MPIX_DEVICE=cuda mixed refused : -n 1 env MPIX_DEVICE=host mixed refused     with MPIX_NIC=none
#include <cuda_runtime.h>
#include <mpi.h>
#include <mpix.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/abort.h"

namespace {

/// Memory and a stream of the GPU or of the host.
class Place {
 public:
  explicit Place(bool on_gpu) : on_gpu_(on_gpu) {
    if (on_gpu_)
      CHECK_CUDA(cudaStreamCreateWithFlags(&gpu_, cudaStreamNonBlocking));
    else
      CHECK_MPI(MPIX_Host_stream_create(&host_));
  }
  char* allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (on_gpu_)
      CHECK_CUDA(cudaMalloc(&memory, bytes));
    else
      memory = std::malloc(bytes);
    return static_cast<char*>(memory);
  }
  void* stream() const { return on_gpu_ ? static_cast<void*>(gpu_) : static_cast<void*>(host_); }
  void synchronize() {
    if (on_gpu_)
      CHECK_CUDA(cudaStreamSynchronize(gpu_));
    else
      CHECK_MPI(MPIX_Host_stream_synchronize(host_));
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (on_gpu_)
      CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    else
      std::memcpy(to, from, bytes);
  }

 private:
  const bool on_gpu_;
  cudaStream_t gpu_ = nullptr;
  MPIX_Host_stream host_ = nullptr;
};

std::vector<std::uint32_t> data_of(int rank, int epoch, std::size_t count) {
  std::vector<std::uint32_t> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<std::uint32_t>(i) * 2654435761u ^ static_cast<std::uint32_t>(epoch * 2 + rank) * 40503u;
  return data;
}

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  CHECK_MPI(MPI_Error_string(code, text, &length));
  return text;
}

/// Sums of both ranks, and what one has, on both.
bool collectives_work(Place& place, int rank) {
  bool good = true;
  for (const int count : {1, 100, 40000, 3000000}) {
    const std::size_t bytes = std::size_t(count) * sizeof(double);
    char* const send = place.allocate(bytes);
    char* const recv = place.allocate(bytes);
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<double> given(static_cast<std::size_t>(count)), found(given.size());
      for (std::size_t i = 0; i < given.size(); ++i) given[i] = 0.1 * double(i % 1000) + rank * turn;
      place.copy(send, given.data(), bytes);
      CHECK_MPI(MPIX_Allreduce_stream(send, recv, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, place.stream()));
      CHECK_MPI(MPIX_Bcast_stream(send, count, MPI_DOUBLE, turn % 2, MPI_COMM_WORLD, place.stream()));
      place.synchronize();
      place.copy(found.data(), recv, bytes);
      for (std::size_t i = 0; i < given.size(); ++i)
        good = good && found[i] == (0.1 * double(i % 1000)) + (0.1 * double(i % 1000) + turn);
      place.copy(found.data(), send, bytes);
      for (std::size_t i = 0; i < given.size(); ++i)
        good = good && found[i] == 0.1 * double(i % 1000) + (turn % 2) * turn;
      if (!good) {
        std::printf("FAILED: rank %d: wrong in call %d of %d doubles, or one before\n", rank, turn, count);
      }
    }
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_refused = argc > 1 && std::strcmp(argv[1], "refused") == 0;
  const char* const device = std::getenv("MPIX_DEVICE");
  int rank = 0, level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  alarm(60);
  Place place(device && std::strcmp(device, "cuda") == 0);
  const int other = 1 - rank;
  MPI_Group world, group;
  CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  CHECK_MPI(MPI_Group_incl(world, 1, &other, &group));

  bool good = true;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{20000}, std::size_t{100000}, std::size_t{3} << 20}) {
    const std::size_t count = bytes / 4;
    char* const memory = place.allocate(bytes);
    char* const source = place.allocate(bytes);
    MPI_Win window;
    CHECK_MPI(MPI_Win_create(memory, MPI_Aint(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    if (is_refused) {
      const int post = MPIX_Win_post_stream(group, window, place.stream());
      const int start = MPI_Win_start(group, MPIX_MODE_STREAM, window);
      for (const int code : {post, start}) {
        int kind = MPI_SUCCESS;
        CHECK_MPI(MPI_Error_class(code, &kind));
        if (kind == MPI_ERR_UNSUPPORTED_OPERATION &&
            text_of(code).find("works with another device") != std::string::npos)
          continue;
        std::printf("FAILED: rank %d, %s: %s\n", rank, code == post ? "post" : "start", text_of(code).c_str());
        good = false;
      }
    }
    for (int epoch = 0; !is_refused && good && epoch < 50; ++epoch) {
      const auto mine = data_of(rank, epoch, count), theirs = data_of(other, epoch, count);
      place.copy(source, mine.data(), bytes);
      CHECK_MPI(MPIX_Win_post_stream(group, window, place.stream()));
      CHECK_MPI(MPI_Win_start(group, MPIX_MODE_STREAM, window));
      CHECK_MPI(MPI_Put(source, int(bytes), MPI_BYTE, other, 0, int(bytes), MPI_BYTE, window));
      CHECK_MPI(MPIX_Win_complete_stream(window, place.stream()));
      CHECK_MPI(MPIX_Win_wait_stream(window, place.stream()));
      place.synchronize();
      std::vector<std::uint32_t> arrived(count);
      place.copy(arrived.data(), memory, bytes);
      good = arrived == theirs;
      if (!good) std::printf("FAILED: rank %d: wrong data in epoch %d of %zu bytes\n", rank, epoch, bytes);
    }
    CHECK_MPI(MPI_Win_free(&window));
  }
  if (!is_refused) good = collectives_work(place, rank) && good;
  if (is_refused) {  // collectives on streams, too
    MPI_Comm comm;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    const int code = MPIX_Barrier_stream(comm, place.stream());
    int kind = MPI_SUCCESS;
    CHECK_MPI(MPI_Error_class(code, &kind));
    if (kind != MPI_ERR_UNSUPPORTED_OPERATION || text_of(code).find("cannot be reached") == std::string::npos) {
      std::printf("FAILED: rank %d, a barrier: %s\n", rank, text_of(code).c_str());
      good = false;
    }
    CHECK_MPI(MPI_Comm_free(&comm));
  }
  CHECK_MPI(MPI_Finalize());
  return good ? 0 : 1;
}
