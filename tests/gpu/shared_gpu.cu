// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Ranks that share GPUs: data, replays, time of an epoch; what happens to waits that never end, and to graphs whose
// window has gone. Kernels write and check all data in stream order.
//
//   mpiexec -n N shared_gpu [exchange|time|captured|late|hang]…
//
// Rank r takes GPU r mod the number there are. MPIX_WAIT and MPS are the caller's to set.
#include <cuda_runtime.h>
#include <mpi.h>
#include <mpix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/abort.h"

namespace {

int rank = 0, ranks = 1;
bool good = true;

void expect(bool holds, const char* what) {
  if (holds) return;
  good = false;
  std::fprintf(stderr, "[%d] FAILED: %s\n", rank, what);
}

double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__device__ std::uint64_t word_of(int origin, int side, std::uint64_t round, std::size_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15ull ^ (static_cast<std::uint64_t>(origin * 2 + side + 1) << 48) ^ round << 20;
}

/// Rounds are counted on the GPU, so that a graph's are.
__global__ void fill(std::uint64_t* words, std::size_t count, int origin, std::uint64_t* round) {
  if (threadIdx.x == 0) ++*round;
  __syncthreads();
  for (int side = 0; side < 2; ++side)
    for (std::size_t i = threadIdx.x; i < count; i += blockDim.x)
      words[side * count + i] = word_of(origin, side, *round, i);
}

__global__ void count_wrong(const std::uint64_t* words, std::size_t count, int left, int right,
                            const std::uint64_t* round, unsigned long long* wrong) {
  for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (words[i] != word_of(left, 1, *round, i)) atomicAdd(wrong, 1ull);           // it put to its right
    if (words[count + i] != word_of(right, 0, *round, i)) atomicAdd(wrong, 1ull);  // it put to its left
  }
}

__global__ void user_kernel() {}

enum class Memory { device, pool, managed };
enum class Calls { three, fused };

/// A ring: each rank puts `bytes` to both neighbours.
class Ring {
 public:
  Ring(std::size_t bytes, cudaStream_t stream, Memory memory = Memory::device) : bytes_(bytes), stream_(stream) {
    left_ = (rank + ranks - 1) % ranks;
    right_ = (rank + 1) % ranks;
    CHECK_CUDA(cudaMalloc(&source_, 2 * bytes));
    CHECK_CUDA(cudaMalloc(&wrong_, sizeof *wrong_));
    CHECK_CUDA(cudaMalloc(&round_, sizeof *round_));
    CHECK_CUDA(cudaMemsetAsync(round_, 0, sizeof *round_, stream));
    CHECK_CUDA(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream));
    const auto size = static_cast<MPI_Aint>(2 * bytes);
    if (memory == Memory::device) {
      MPI_Info info;
      MPI_Info_create(&info);
      MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device");
      CHECK_MPI(MPI_Win_allocate(size, 1, info, MPI_COMM_WORLD, &window_memory_, &window_));
      MPI_Info_free(&info);
    } else {
      if (memory == Memory::pool)
        CHECK_CUDA(cudaMallocAsync(&own_, 2 * bytes, stream));
      else
        CHECK_CUDA(cudaMallocManaged(&own_, 2 * bytes));
      CHECK_CUDA(cudaStreamSynchronize(stream));
      window_memory_ = own_;
      CHECK_MPI(MPI_Win_create(own_, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    }
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int neighbours[2] = {left_, right_};
    MPI_Group_incl(world, left_ == right_ ? 1 : 2, neighbours, &group_);
    MPI_Group_free(&world);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    MPI_Barrier(MPI_COMM_WORLD);
  }

  ~Ring() {
    free_window();
    MPI_Group_free(&group_);
    CHECK_CUDA(cudaFree(source_));
    CHECK_CUDA(cudaFree(wrong_));
    CHECK_CUDA(cudaFree(round_));
    if (own_) CHECK_CUDA(cudaFree(own_));
  }

  void free_window() {
    if (window_ != MPI_WIN_NULL) CHECK_MPI(MPI_Win_free(&window_));
  }

  MPI_Win window() const { return window_; }
  MPI_Group group() const { return group_; }

  void start_and_put() {
    CHECK_MPI(MPI_Win_start(group_, MPIX_MODE_STREAM, window_));
    const int count = static_cast<int>(bytes_);
    CHECK_MPI(MPI_Put(source_, count, MPI_BYTE, left_, static_cast<MPI_Aint>(bytes_), count, MPI_BYTE, window_));
    CHECK_MPI(MPI_Put(source_ + bytes_, count, MPI_BYTE, right_, 0, count, MPI_BYTE, window_));
  }

  void exchange(Calls calls) {
    CHECK_MPI(MPIX_Win_post_stream(group_, window_, stream_));
    start_and_put();
    if (calls == Calls::fused) {
      CHECK_MPI(MPIX_Win_complete_wait_stream(window_, stream_));
    } else {
      CHECK_MPI(MPIX_Win_complete_stream(window_, stream_));
      CHECK_MPI(MPIX_Win_wait_stream(window_, stream_));
    }
  }

  void checked_exchange(Calls calls) {
    fill<<<1, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(source_), bytes_ / 8, rank, round_);
    exchange(calls);
    count_wrong<<<1, 256, 0, stream_>>>(static_cast<const std::uint64_t*>(window_memory_), bytes_ / 8, left_, right_,
                                        round_, wrong_);
    CHECK_CUDA(cudaGetLastError());
  }

  unsigned long long wrong() {
    unsigned long long mine = 0, all = 0;
    CHECK_CUDA(cudaMemcpyAsync(&mine, wrong_, sizeof mine, cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
  }

  std::uint64_t rounds() {
    std::uint64_t count = 0;
    CHECK_CUDA(cudaMemcpyAsync(&count, round_, sizeof count, cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    return count;
  }

 private:
  const std::size_t bytes_;
  cudaStream_t stream_;
  int left_ = 0, right_ = 0;
  char* source_ = nullptr;
  void* own_ = nullptr;
  void* window_memory_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  std::uint64_t* round_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
};

cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
  return executable;
}

template <class... Values>
void say(const char* format, Values... values) {
  if (rank == 0) std::printf(format, values...);
  std::fflush(stdout);
}

void test_exchange(cudaStream_t stream) {
  struct Case {
    const char* name;
    std::size_t bytes;
    Memory memory;
  };
  for (const Case& c : {Case{"2 KiB", 2048, Memory::device}, Case{"200 KiB, direct", 200 << 10, Memory::device},
                        Case{"2 KiB into pool memory", 2048, Memory::pool},
                        Case{"200 KiB into pool memory, staged", 200 << 10, Memory::pool},
                        Case{"2 KiB into managed memory", 2048, Memory::managed}}) {
    unsigned long long wrong = 0;
    for (Calls calls : {Calls::three, Calls::fused}) {
      Ring ring(c.bytes, stream, c.memory);
      for (int i = 0; i < 12; ++i) ring.checked_exchange(calls);
      wrong += ring.wrong();
    }
    say("exchange %-36s %s\n", c.name, wrong ? "WRONG DATA" : "ok");
    expect(wrong == 0, c.name);
  }
}

void test_time(cudaStream_t stream) {
  const auto time = [&](const char* name, int epochs, const std::function<void()>& once) {
    std::vector<double> times;
    double enqueue = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = now();
      for (int i = 0; i < epochs; ++i) once();
      enqueue = (now() - begin) / epochs;
      CHECK_CUDA(cudaStreamSynchronize(stream));
      times.push_back((now() - begin) / epochs);
    }
    std::sort(times.begin(), times.end());
    say("time %-34s %10.1f us (min %.1f max %.1f) CPU %.1f\n", name, times[2], times[0], times[4], enqueue);
  };
  const char* wait = std::getenv("MPIX_WAIT");
  const int epochs = wait && std::string(wait) == "kernel" && ranks > 2 ? 12 : 100;
  Ring ring(2048, stream);
  time("three calls", epochs, [&] { ring.exchange(Calls::three); });
  time("fused", epochs, [&] { ring.exchange(Calls::fused); });
  time("three calls, a user kernel", epochs, [&] {
    ring.exchange(Calls::three);
    user_kernel<<<1, 32, 0, stream>>>();
  });
  cudaGraphExec_t graph = captured(stream, [&] {
    for (int i = 0; i < 6; ++i) ring.exchange(Calls::three);
  });
  time("captured, six epochs (per graph)", epochs / 6, [&] { CHECK_CUDA(cudaGraphLaunch(graph, stream)); });
  CHECK_CUDA(cudaGraphExecDestroy(graph));
  Ring large(256 << 10, stream);
  time("three calls, 256 KiB direct", epochs, [&] { large.exchange(Calls::three); });
}

/// Replays mixed with epochs that are not captured; posts and waits in different graphs; a graph never launched.
void test_captured(cudaStream_t stream) {
  for (std::size_t bytes : {std::size_t{2048}, std::size_t{200} << 10}) {
    Ring ring(bytes, stream);
    for (int i = 0; i < 3; ++i) ring.checked_exchange(Calls::three);
    cudaGraphExec_t three = captured(stream, [&] {
      for (int i = 0; i < 3; ++i) ring.checked_exchange(Calls::three);
    });
    cudaGraphExec_t fused = captured(stream, [&] { ring.checked_exchange(Calls::fused); });
    cudaGraphExec_t never = captured(stream, [&] { ring.checked_exchange(Calls::three); });
    for (int i = 0; i < 10; ++i) {
      CHECK_CUDA(cudaGraphLaunch(three, stream));
      ring.checked_exchange(Calls::fused);
      CHECK_CUDA(cudaGraphLaunch(fused, stream));
      CHECK_CUDA(cudaGraphLaunch(fused, stream));
      ring.checked_exchange(Calls::three);
    }
    const unsigned long long wrong = ring.wrong();
    expect(wrong == 0, "replayed data");
    expect(ring.rounds() == 3 + 10 * (3 + 1 + 2 + 1), "rounds");
    ring.free_window();  // though one graph was never launched, and the others more often than captured
    say("captured %zu B: %s\n", bytes, wrong ? "WRONG DATA" : "ok");
    for (cudaGraphExec_t graph : {three, fused, never}) CHECK_CUDA(cudaGraphExecDestroy(graph));
  }
  Ring ring(2048, stream);
  cudaGraphExec_t post =
      captured(stream, [&] { CHECK_MPI(MPIX_Win_post_stream(ring.group(), ring.window(), stream)); });
  cudaGraphExec_t complete = captured(stream, [&] {
    ring.start_and_put();
    CHECK_MPI(MPIX_Win_complete_stream(ring.window(), stream));
  });
  cudaGraphExec_t wait = captured(stream, [&] { CHECK_MPI(MPIX_Win_wait_stream(ring.window(), stream)); });
  for (int i = 0; i < 20; ++i)
    for (cudaGraphExec_t graph : {post, complete, wait}) CHECK_CUDA(cudaGraphLaunch(graph, stream));
  for (int i = 0; i < 3; ++i) ring.checked_exchange(Calls::three);
  expect(ring.wrong() == 0, "after calls in graphs of their own");
  say("captured, a graph for each call: %s\n", good ? "ok" : "FAILED");
  for (cudaGraphExec_t graph : {post, complete, wait}) CHECK_CUDA(cudaGraphExecDestroy(graph));
}

/// A graph that outlives its window finds nothing to do, and leaves the next window alone.
void test_late(cudaStream_t stream) {
  cudaGraphExec_t late;
  {
    Ring ring(2048, stream);
    late = captured(stream, [&] { ring.exchange(Calls::three); });
    CHECK_CUDA(cudaGraphLaunch(late, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    MPI_Barrier(MPI_COMM_WORLD);
    ring.free_window();
    MPI_Barrier(MPI_COMM_WORLD);
    // The program's buffers are still there; the window's memory is the library's.
    Ring next(2048, stream);
    const double begin = now();
    for (int i = 0; i < 5; ++i) {
      CHECK_CUDA(cudaGraphLaunch(late, stream));
      next.checked_exchange(Calls::three);
    }
    expect(next.wrong() == 0, "window behind a graph whose window has gone");
    say("late: five launches of a graph without its window took %.0f us\n", now() - begin);
  }
  CHECK_CUDA(cudaGraphExecDestroy(late));
  Ring again(2048, stream);
  for (int i = 0; i < 3; ++i) again.checked_exchange(Calls::fused);
  expect(again.wrong() == 0, "window after the graph has gone");
}

/// Rank 0 comes late for ever. The caller sets MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error, and reads the report.
void test_hang(cudaStream_t stream) {
  for (Calls calls : {Calls::three, Calls::fused}) {
    Ring ring(2048, stream);
    for (int i = 0; i < 5; ++i) ring.checked_exchange(calls);
    expect(ring.wrong() == 0, "before the hang");
    CHECK_CUDA(cudaStreamSynchronize(stream));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) {
      const double begin = now();
      // Some have rank 0 as a neighbour; the others miss those who then stop.
      for (int i = 0; i < 8; ++i) ring.exchange(calls);
      CHECK_CUDA(cudaStreamSynchronize(stream));
      std::fprintf(stderr, "[%d] released after %.1f s\n", rank, (now() - begin) / 1e6);
      const int code = MPIX_Win_post_stream(ring.group(), ring.window(), stream);
      int type = MPI_SUCCESS;
      MPI_Error_class(code, &type);
      expect(type == MPI_ERR_RMA_SYNC, "a broken window returns an error");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Ring after(2048, stream);
  for (int i = 0; i < 3; ++i) after.checked_exchange(Calls::three);
  expect(after.wrong() == 0, "another window, after the broken ones");
  say("hang: %s\n", good ? "ok" : "FAILED");
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
  if (ranks < 2) {
    std::printf("skipped: needs 2 ranks\n");
    MPI_Finalize();
    return 77;
  }
  alarm(240);  // a test that hangs is a test that fails
  CHECK_CUDA(cudaSetDevice(rank % gpus));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  struct Test {
    const char* name;
    void (*run)(cudaStream_t);
    bool preset;
  };
  for (const Test& test :
       {Test{"exchange", test_exchange, true}, Test{"captured", test_captured, true}, Test{"late", test_late, true},
        Test{"time", test_time, false}, Test{"hang", test_hang, false}}) {
    const bool named =
        std::any_of(argv + 1, argv + argc, [&](const char* name) { return std::strcmp(name, test.name) == 0; });
    if (argc > 1 ? named : test.preset) test.run(stream);
  }
  CHECK_CUDA(cudaStreamDestroy(stream));
  int mine = good ? 0 : 1, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return all;
}
