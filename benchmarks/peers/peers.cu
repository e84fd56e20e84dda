// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The halo exchange of one GPU a rank with its neighbours in a grid of 2 ranks a side: libmpix beside NCCL, in one
// run, on the same buffers, in stream mode and captured in a graph. Every word that arrives is checked.
#include <cuda_runtime.h>
#include <mpi.h>
#include <mpix.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#define CHECK_CUDA(call)                                                                                         \
  do {                                                                                                           \
    const cudaError_t error_ = (call);                                                                           \
    if (error_ != cudaSuccess) {                                                                                 \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));             \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
    }                                                                                                            \
  } while (0)

#define CHECK_NCCL(call)                                                                                         \
  do {                                                                                                           \
    const ncclResult_t error_ = (call);                                                                          \
    if (error_ != ncclSuccess) {                                                                                 \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(error_));             \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
    }                                                                                                            \
  } while (0)

namespace {

constexpr int epochs_in_graph = 50;
constexpr int repeats = 7;

struct Neighbour {
  int rank;
  std::size_t bytes;
};

__host__ __device__ std::uint64_t word_of(int origin, int target, unsigned round, std::size_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15ull ^ (static_cast<std::uint64_t>(origin + 1) << 48) ^
         (static_cast<std::uint64_t>(target + 1) << 40) ^ (static_cast<std::uint64_t>(round) << 20);
}

__global__ void fill(std::uint64_t* words, std::size_t count, int origin, int target, unsigned round) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = word_of(origin, target, round, i);
}

__global__ void count_wrong(const std::uint64_t* words, std::size_t count, int origin, int target, unsigned round,
                            unsigned long long* wrong) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    if (words[i] != word_of(origin, target, round, i)) atomicAdd(wrong, 1ull);
}

__global__ void user_kernel() {}

double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// One size: buffers, window and what exchanges them.
class Exchange {
 public:
  Exchange(std::size_t face, bool lazy, cudaStream_t stream) : stream_(stream) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    std::vector<int> ranks;
    for (int step = 1; step < size_; ++step) {
      // Neighbours across a face, an edge or a corner: the bits in which the ranks differ.
      const int distance = __builtin_popcount(static_cast<unsigned>(step));
      const std::size_t edge = std::max<std::size_t>(8, static_cast<std::size_t>(8 * std::max(1.0, __builtin_sqrt(face / 8.0))));
      neighbours_.push_back({rank_ ^ step, distance == 1 ? face : distance == 2 ? edge / 8 * 8 : 8});
      ranks.push_back(rank_ ^ step);
    }
    slot_ = (face + 255) / 256 * 256;
    CHECK_CUDA(cudaMalloc(&send_, slot_ * static_cast<std::size_t>(size_)));
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
    if (lazy) MPI_Info_set(info, "mpix_lazy_post", "true");
    MPI_Win_allocate(static_cast<MPI_Aint>(slot_) * size_, 1, info, MPI_COMM_WORLD, &receive_, &window_);
    MPI_Info_free(&info);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group_);
    MPI_Group_free(&world);
    CHECK_CUDA(cudaMalloc(&wrong_, sizeof *wrong_));
  }

  ~Exchange() {
    MPI_Group_free(&group_);
    MPI_Win_free(&window_);
    CHECK_CUDA(cudaFree(send_));
    CHECK_CUDA(cudaFree(wrong_));
  }

  void post() { MPIX_Win_post_stream(group_, window_, stream_); }

  void start_and_put() {
    MPI_Win_start(group_, MPIX_MODE_STREAM, window_);
    for (const Neighbour& n : neighbours_)
      MPI_Put(send_ + slot_ * static_cast<std::size_t>(n.rank), static_cast<int>(n.bytes), MPI_CHAR, n.rank,
              static_cast<MPI_Aint>(slot_) * rank_, static_cast<int>(n.bytes), MPI_CHAR, window_);
  }

  void three_calls() {
    post();
    start_and_put();
    MPIX_Win_complete_stream(window_, stream_);
    MPIX_Win_wait_stream(window_, stream_);
  }

  void fused() {
    post();
    start_and_put();
    MPIX_Win_complete_wait_stream(window_, stream_);
  }

  void with_user_kernels() {
    post();
    user_kernel<<<1, 32, 0, stream_>>>();
    start_and_put();
    MPIX_Win_complete_stream(window_, stream_);
    MPIX_Win_wait_stream(window_, stream_);
    user_kernel<<<1, 32, 0, stream_>>>();
  }

#ifdef HAVE_NCCL
  void nccl(ncclComm_t comm) {
    CHECK_NCCL(ncclGroupStart());
    for (const Neighbour& n : neighbours_) {
      CHECK_NCCL(ncclSend(send_ + slot_ * static_cast<std::size_t>(n.rank), n.bytes, ncclChar, n.rank, comm, stream_));
      CHECK_NCCL(ncclRecv(receive_ + slot_ * static_cast<std::size_t>(n.rank), n.bytes, ncclChar, n.rank, comm, stream_));
    }
    CHECK_NCCL(ncclGroupEnd());
  }
#endif

  void fill_all(unsigned round) {
    for (const Neighbour& n : neighbours_)
      fill<<<64, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(send_ + slot_ * static_cast<std::size_t>(n.rank)),
                                    n.bytes / 8, rank_, n.rank, round);
    CHECK_CUDA(cudaGetLastError());
  }

  /// Enqueue the check of what arrived in `round`.
  void check_all(unsigned round) {
    for (const Neighbour& n : neighbours_)
      count_wrong<<<64, 256, 0, stream_>>>(
          reinterpret_cast<const std::uint64_t*>(receive_ + slot_ * static_cast<std::size_t>(n.rank)), n.bytes / 8,
          n.rank, rank_, round, wrong_);
    CHECK_CUDA(cudaGetLastError());
  }

  void poison() {
    CHECK_CUDA(cudaMemsetAsync(receive_, 0xee, slot_ * static_cast<std::size_t>(size_), stream_));
    CHECK_CUDA(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_));
  }

  unsigned long long wrong() {
    unsigned long long mine = 0, all = 0;
    CHECK_CUDA(cudaMemcpyAsync(&mine, wrong_, sizeof mine, cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
  }

 private:
  int rank_ = 0, size_ = 1;
  cudaStream_t stream_;
  std::vector<Neighbour> neighbours_;
  std::size_t slot_ = 0;
  char* send_ = nullptr;
  char* receive_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
};

struct Measured {
  double stream_us, graph_us, enqueue_us;
  unsigned long long wrong;
};

Measured measure(Exchange& exchange, cudaStream_t stream, const std::function<void()>& once) {
  Measured result{};
  exchange.poison();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  MPI_Barrier(MPI_COMM_WORLD);
  for (unsigned round = 1; round <= 20; ++round) {  // also the warm-up
    exchange.fill_all(round);
    once();
    exchange.check_all(round);
  }
  result.wrong = exchange.wrong();

  constexpr int epochs = 1000;
  std::vector<double> times, enqueues;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = now();
    for (int i = 0; i < epochs; ++i) once();
    const double enqueued = now();
    CHECK_CUDA(cudaStreamSynchronize(stream));
    times.push_back((now() - begin) / epochs);
    enqueues.push_back((enqueued - begin) / epochs);
  }
  result.stream_us = median(times);
  result.enqueue_us = median(enqueues);

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < epochs_in_graph; ++i) once();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  exchange.poison();
  exchange.fill_all(77);
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  exchange.check_all(77);
  result.wrong += exchange.wrong();
  times.clear();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = now();
    for (int i = 0; i < epochs / epochs_in_graph; ++i) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    times.push_back((now() - begin) / epochs);
  }
  result.graph_us = median(times);
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, gpus;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK_CUDA(cudaGetDeviceCount(&gpus));
  CHECK_CUDA(cudaSetDevice(rank % gpus));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
#ifdef HAVE_NCCL
  ncclComm_t comm = nullptr;
  if (gpus >= size) {
    ncclUniqueId id;
    if (rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK_NCCL(ncclCommInitRank(&comm, size, id, rank));
  }
#endif
  if (rank == 0) std::printf("peers: %d ranks on %d GPUs, medians of %d runs of 1000 epochs\n", size, gpus, repeats);
  bool good = true;
  for (std::size_t face : {std::size_t{512}, std::size_t{32} << 10, std::size_t{128} << 10, std::size_t{512} << 10,
                           std::size_t{2} << 20}) {
    Exchange exchange(face, false, stream), lazy(face, true, stream);
    struct Variant {
      const char* name;
      Exchange* exchange;
      std::function<void()> once;
    };
    std::vector<Variant> variants;
#ifdef HAVE_NCCL
    if (comm) variants.push_back({"nccl send/recv group", &exchange, [&] { exchange.nccl(comm); }});
#endif
    variants.push_back({"mpix post, complete, wait", &exchange, [&] { exchange.three_calls(); }});
    variants.push_back({"mpix post, complete, wait; lazy", &lazy, [&] { lazy.three_calls(); }});
    variants.push_back({"mpix post, complete_wait", &exchange, [&] { exchange.fused(); }});
    variants.push_back({"mpix post, complete_wait; lazy", &lazy, [&] { lazy.fused(); }});
#ifdef HAVE_NCCL
    if (comm)
      variants.push_back({"nccl, 2 user kernels", &exchange, [&] {
                            user_kernel<<<1, 32, 0, stream>>>();
                            exchange.nccl(comm);
                            user_kernel<<<1, 32, 0, stream>>>();
                          }});
#endif
    variants.push_back({"mpix three calls, 2 user kernels", &exchange, [&] { exchange.with_user_kernels(); }});
    variants.push_back({"mpix three calls, 2 user kernels; lazy", &lazy, [&] { lazy.with_user_kernels(); }});
    for (const Variant& variant : variants) {
      const Measured m = measure(*variant.exchange, stream, variant.once);
      good = good && m.wrong == 0;
      if (rank == 0)
        std::printf("face %8zu B  %-40s stream %8.2f us (CPU %6.2f)  graph %8.2f us  %s\n", face, variant.name,
                    m.stream_us, m.enqueue_us, m.graph_us, m.wrong ? "WRONG DATA" : "ok");
      std::fflush(stdout);
    }
  }
#ifdef HAVE_NCCL
  if (comm) CHECK_NCCL(ncclCommDestroy(comm));
#endif
  CHECK_CUDA(cudaStreamDestroy(stream));
  MPI_Finalize();
  return good ? 0 : 1;
}
