// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/abort.h"
#include "support/domain.h"

/// NVSHMEM with a processing element (PE) for each process of MPI, on a GPU of its own.
namespace shmem {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}
inline void check(int code, const char* call) {
  if (code != 0) fail(std::string(call) + ": error " + std::to_string(code));
}

/// Started with an id that MPI carries, so that NVSHMEM needs no plug-in for the MPI at hand.
class World {
 public:
  World() {
    choose_gpu();
    int rank = 0, ranks = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (rank == 0) check(nvshmemx_get_uniqueid(&id), "nvshmemx_get_uniqueid");
    CHECK_MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    check(nvshmemx_set_attr_uniqueid_args(rank, ranks, &id, &attributes), "nvshmemx_set_attr_uniqueid_args");
    check(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes), "nvshmemx_init_attr");
  }
  ~World() { nvshmem_finalize(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

 private:
  /// Kernels of processes that share a GPU do not run at once, and the first would wait for the second for ever.
  static void choose_gpu() {
    MPI_Comm node = MPI_COMM_NULL;
    int rank = 0, ranks = 1;
    CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    CHECK_MPI(MPI_Comm_rank(node, &rank));
    CHECK_MPI(MPI_Comm_size(node, &ranks));
    CHECK_MPI(MPI_Comm_free(&node));
    const int gpus = support::gpus();
    if (ranks > gpus) fail(std::to_string(ranks) + " processes need a GPU each, and there are " + std::to_string(gpus));
    support::choose_gpu(rank);
  }
};

/// Of the symmetric heap, zeroed. Collective.
template <class T>
class Memory {
 public:
  explicit Memory(std::size_t count) : base_(static_cast<T*>(nvshmem_malloc(count * sizeof(T)))) {
    if (!base_)
      fail("nvshmem_malloc of " + std::to_string(count * sizeof(T)) + " bytes failed (NVSHMEM_SYMMETRIC_SIZE)");
    CHECK_CUDA(cudaMemset(base_, 0, count * sizeof(T)));
    CHECK_CUDA(cudaDeviceSynchronize());
    nvshmem_barrier_all();
  }
  ~Memory() { nvshmem_free(base_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* get() const { return base_; }

 private:
  T* const base_;
};

/// Of so many threads at most; of so many blocks that a multiprocessor takes at once.
template <class Kernel, int threads, int blocks>
__global__ void __launch_bounds__(threads, blocks) run_kernel(Kernel kernel) {
  kernel();
}

/// All blocks are on the GPU at once, else it fails. Returns when they are over.
template <int most_threads, int blocks_each, class Kernel>
void run(Kernel kernel, int blocks, int threads) {
  void* arguments[] = {&kernel};
  const auto* const function = reinterpret_cast<const void*>(run_kernel<Kernel, most_threads, blocks_each>);
  check(nvshmemx_collective_launch(function, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
                                   arguments, 0, nullptr),
        "nvshmemx_collective_launch");
  CHECK_CUDA(cudaDeviceSynchronize());
}

template <class Kernel, int most_threads, int blocks_each>
int blocks_that_fit(int threads) {
  int blocks = 0;
  const auto* const function = reinterpret_cast<const void*>(run_kernel<Kernel, most_threads, blocks_each>);
  check(nvshmemx_collective_launch_query_gridsize(function, dim3(static_cast<unsigned>(threads)), nullptr, 0, &blocks),
        "nvshmemx_collective_launch_query_gridsize");
  return blocks;
}

template <int most_threads, int blocks_each, class Kernel>
double seconds_of(const Kernel& kernel, int blocks, int threads) {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const auto begin = std::chrono::steady_clock::now();
  run<most_threads, blocks_each>(kernel, blocks, threads);
  double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return all;
}

/// Of one step, in microseconds, as benchmarks/dev/dev.cpp has it: the median of seven launches, of each the time of a
/// launch without steps taken off. Steps are counted in kernel.before, as signals become larger with each.
template <int most_threads = 512, int blocks_each = 1, class Kernel>
double step_time(Kernel kernel, int steps, int blocks, int threads) {
  const auto timed = [&](int now) {
    kernel.steps = now;
    const double time = seconds_of<most_threads, blocks_each>(kernel, blocks, threads);
    kernel.before += static_cast<std::uint64_t>(now);
    return time;
  };
  std::vector<double> times;
  (void)timed(steps);
  for (int run = 0; run < 7; ++run) {
    const double empty = timed(0);
    times.push_back((timed(steps) - empty) / steps * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

}  // namespace shmem
