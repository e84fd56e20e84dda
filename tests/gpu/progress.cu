// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Programs that are right and can hang where kernels that wait for peers, or calls that wait for kernels, stand in each
// other's way:
//
//   mpiexec -n N progress free [ROUNDS]
//     a window is freed, and another one made, while a third one's wait is in a stream that waits for a peer, whose
//     complete comes later
//   mpiexec -n N progress few [ROUNDS] [WINDOWS]
//     windows on as many streams, each rank in another order, with up to 100 KB by mailbox: for a GPU of few
//     multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)
//   mpiexec -n N progress large [GIBIBYTES]
//     a window of so much, and puts here and there
//
// Rank r takes GPU r mod the number there are. A run that hangs ends by its alarm, and has failed.
#include <cuda_runtime.h>
#include <mpi.h>
#include <mpix.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/abort.h"

namespace {

int rank = 0, ranks = 1;

__device__ std::uint32_t word_of(int origin, std::uint32_t round, std::size_t i) {
  return (static_cast<std::uint32_t>(i) + 1) * 2654435761u ^ static_cast<std::uint32_t>(origin + 1) << 24 ^
         round * 40503u;
}
__global__ void fill(std::uint32_t* words, std::size_t count, int origin, std::uint32_t round) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = word_of(origin, round, i);
}
__global__ void check(const std::uint32_t* words, std::size_t count, int origin, std::uint32_t round,
                      unsigned long long* wrong) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    if (words[i] != word_of(origin, round, i)) atomicAdd(wrong, 1ull);
}

unsigned long long* wrong = nullptr;

/// A window over memory of the program: each rank puts to its right neighbour.
class Halo {
 public:
  explicit Halo(std::size_t bytes, std::size_t source_bytes = 0) {
    CHECK_CUDA(cudaMalloc(&memory_, bytes));
    CHECK_CUDA(cudaMalloc(&source_, source_bytes ? source_bytes : bytes));
    CHECK_MPI(MPI_Win_create(memory_, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    CHECK_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    MPI_Group world;
    const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &left, &from_);
    MPI_Group_incl(world, 1, &right, &to_);
    MPI_Group_free(&world);
  }
  /// After MPI_Win_free: to free memory of a GPU is to wait for all that runs there.
  ~Halo() {
    free_window();
    CHECK_CUDA(cudaFree(memory_));
    CHECK_CUDA(cudaFree(source_));
    MPI_Group_free(&from_);
    MPI_Group_free(&to_);
  }
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  void free_window() {
    if (window_ != MPI_WIN_NULL) CHECK_MPI(MPI_Win_free(&window_));
  }
  void post(cudaStream_t stream) { CHECK_MPI(MPIX_Win_post_stream(from_, window_, stream)); }
  void put(std::size_t bytes, std::size_t offset, std::uint32_t round, cudaStream_t stream) {
    fill<<<4, 256, 0, stream>>>(source_, bytes / 4, rank, round);
    CHECK_CUDA(cudaGetLastError());
    CHECK_MPI(MPI_Win_start(to_, MPIX_MODE_STREAM, window_));
    CHECK_MPI(MPI_Put(source_, static_cast<int>(bytes), MPI_BYTE, (rank + 1) % ranks, static_cast<MPI_Aint>(offset),
                      static_cast<int>(bytes), MPI_BYTE, window_));
    CHECK_MPI(MPIX_Win_complete_stream(window_, stream));
  }
  void wait(std::size_t bytes, std::size_t offset, std::uint32_t round, cudaStream_t stream) {
    CHECK_MPI(MPIX_Win_wait_stream(window_, stream));
    check<<<4, 256, 0, stream>>>(memory_ + offset / 4, bytes / 4, (rank + ranks - 1) % ranks, round, wrong);
    CHECK_CUDA(cudaGetLastError());
  }

 private:
  std::uint32_t *memory_ = nullptr, *source_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group from_ = MPI_GROUP_NULL, to_ = MPI_GROUP_NULL;
};

cudaStream_t new_stream() {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void test_free(int rounds) {
  constexpr std::size_t large = 2 << 20, small = 4096;
  const cudaStream_t first = new_stream(), second = new_stream(), third = new_stream();
  Halo lasting(large);
  for (int round = 0; round < rounds; ++round) {
    alarm(60);
    auto passing = std::make_unique<Halo>(large);
    for (int k = 0; k < 2; ++k) {
      passing->post(first);
      passing->put(k ? large : small, 0, round, first);
      passing->wait(k ? large : small, 0, round, first);
    }
    lasting.post(second);
    lasting.wait(large, 0, round, second);  // for a complete that comes last
    passing->free_window();
    Halo made_meanwhile(small);
    made_meanwhile.post(first);
    made_meanwhile.put(small, 0, round, first);
    made_meanwhile.wait(small, 0, round, first);
    made_meanwhile.free_window();
    lasting.put(large, 0, round, third);
    for (cudaStream_t stream : {first, second, third}) CHECK_CUDA(cudaStreamSynchronize(stream));
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

void test_few(int rounds, int count) {
  std::mt19937 random(7);  // alike on all ranks
  std::vector<std::unique_ptr<Halo>> windows;
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < count; ++i) {
    windows.push_back(std::make_unique<Halo>(100 << 10));
    streams.push_back(new_stream());
  }
  const auto patience = static_cast<unsigned>(60 + rounds / 4);
  alarm(patience);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::size_t> bytes;
    for (int i = 0; i < count; ++i) bytes.push_back(4 * (1 + random() % (25 << 10)));
    for (int k = 0; k < count; ++k) {
      const auto i = static_cast<std::size_t>(rank % 2 ? count - 1 - k : k);
      windows[i]->post(streams[i]);
      windows[i]->put(bytes[i], 0, static_cast<std::uint32_t>(round), streams[i]);
      windows[i]->wait(bytes[i], 0, static_cast<std::uint32_t>(round), streams[i]);
    }
    if (round % 8 == 7)
      for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
}

void test_large(int gibibytes) {
  alarm(200);
  const std::size_t bytes = std::size_t(gibibytes) << 30, piece = 4 << 20;
  const cudaStream_t stream = new_stream();
  Halo window(bytes, piece);
  std::mt19937_64 random(11);
  for (std::uint32_t round = 0; round < 24; ++round) {
    const std::size_t size = round % 3 ? piece : 4096;
    const std::size_t offset = round < 2 ? (bytes - size) * round : random() % ((bytes - size) / 4) * 4;
    window.post(stream);
    window.put(size, offset, round, stream);
    window.wait(size, offset, round, stream);
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    if (rank == 0) std::printf("skipped: no GPU\n");
    MPI_Finalize();
    return 77;
  }
  alarm(120);
  CHECK_CUDA(cudaSetDevice(rank % gpus));
  CHECK_CUDA(cudaMalloc(&wrong, sizeof *wrong));
  CHECK_CUDA(cudaMemset(wrong, 0, sizeof *wrong));
  const std::string what = argc > 1 ? argv[1] : "free";
  const auto number = [&](int i, int preset) { return argc > i ? std::atoi(argv[i]) : preset; };
  if (what == "free") test_free(number(2, 10));
  if (what == "few") test_few(number(2, 40), number(3, 2));
  if (what == "large") test_large(number(2, 9));
  unsigned long long mine = 0, all = 0;
  CHECK_CUDA(cudaMemcpy(&mine, wrong, sizeof mine, cudaMemcpyDeviceToHost));
  MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s: %llu wrong words\n", what.c_str(), all);
  MPI_Finalize();
  return all != 0;
}
