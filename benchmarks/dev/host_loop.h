// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "diffusion.h"
#include "support/abort.h"

/// The same diffusion as programs without ranks in kernels have it: the host launches each phase, packs the halos for
/// the processes around, and exchanges them by MPI_Isend and MPI_Irecv. On a GPU by way of pinned memory of the host,
/// which the kernels that pack and unpack reach.
namespace diffusion {

#if defined(__CUDACC__) || defined(__HIPCC__)
template <class Body>
__global__ void run_body(Body body) {
  body(static_cast<int>(blockIdx.x));
}

/// body(i) for each i below `blocks`: a block each, in the order of the calls.
class Launcher {
 public:
  Launcher(int, int threads) : threads_(threads) {}
  template <class Body>
  void run(const Body& body, int blocks) {
    run_body<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads_)>>>(body);
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GetLastError)());
  }
  void synchronize() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamSynchronize)(nullptr)); }

 private:
  const int threads_;
};

struct FreePinned {
#if defined(__HIPCC__)
  void operator()(double* memory) const { DOMAIN_CHECK_GPU(hipHostFree(memory)); }
#else
  void operator()(double* memory) const { DOMAIN_CHECK_GPU(cudaFreeHost(memory)); }
#endif
};
using Pinned = std::unique_ptr<double[], FreePinned>;
inline Pinned allocate_pinned(std::size_t count) {
  void* memory = nullptr;
#if defined(__HIPCC__)
  DOMAIN_CHECK_GPU(hipHostMalloc(&memory, count * sizeof(double), 0));
#else
  DOMAIN_CHECK_GPU(cudaMallocHost(&memory, count * sizeof(double)));
#endif
  return Pinned(static_cast<double*>(memory));
}
#else
/// body(i) for each i below `blocks`, by `workers` threads, of which the caller is one. Returns when all is done.
class Launcher {
 public:
  Launcher(int workers, int) : workers_(workers) {
    for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Launcher() {
    start([](int) {}, true);
    for (std::thread& thread : threads_) thread.join();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  template <class Body>
  void run(const Body& body, int blocks) {
    const auto part = [this, &body, blocks](int worker) {
      for (int block = worker; block < blocks; block += workers_) body(block);
    };
    start(part, false);
    part(0);
    std::unique_lock<std::mutex> hold(mutex_);
    over_.wait(hold, [this] { return working_ == 0; });
  }
  void synchronize() {}

 private:
  void start(std::function<void(int)> job, bool last) {
    const std::lock_guard<std::mutex> hold(mutex_);
    job_ = std::move(job);
    working_ = workers_ - 1;
    last_ = last;
    ++round_;
    begin_.notify_all();
  }
  void work(int worker) {
    for (unsigned seen = 0;;) {
      std::unique_lock<std::mutex> hold(mutex_);
      begin_.wait(hold, [this, seen] { return round_ != seen; });
      seen = round_;
      if (last_) return;
      hold.unlock();
      job_(worker);
      hold.lock();
      if (--working_ == 0) over_.notify_one();
    }
  }

  const int workers_;
  std::mutex mutex_;
  std::condition_variable begin_, over_;
  std::function<void(int)> job_;
  unsigned round_ = 0;
  int working_ = 0;
  bool last_ = false;
  std::vector<std::thread> threads_;
};

using Pinned = std::unique_ptr<double[]>;
inline Pinned allocate_pinned(std::size_t count) { return std::make_unique<double[]>(count); }
#endif

struct ComputePhase {
  Phase phase;
  Grid grid;
  Fields fields;
  int ranks;
  MPIX_DEV_METHOD void operator()(int rank) const { compute(phase, grid, Patch(grid, rank, ranks), fields); }
};

/// A row of all levels, and where it lies packed; null: none.
struct Packed {
  double *row, *buffer;
};
struct CopyRows {
  Grid grid;
  Packed down, up;
  bool pack;
  MPIX_DEV_METHOD void operator()(int level) const {
    copy(level, down);
    copy(level, up);
  }

 private:
  MPIX_DEV_METHOD void copy(int level, const Packed& packed) const {
    if (!packed.buffer) return;
    double* const row = packed.row + grid.at(level, 0);
    double* const buffer = packed.buffer + static_cast<std::size_t>(level) * static_cast<std::size_t>(grid.columns);
    const Team team = team_here();
    for (int i = team.index; i < grid.columns; i += team.size)
      if (pack)
        buffer[i] = row[i];
      else
        row[i] = buffer[i];
  }
};

class HostLoop {
 public:
  HostLoop(const Grid& grid, int ranks, int threads) : grid_(grid), ranks_(ranks), launcher_(ranks, threads) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    below_ = process > 0 ? process - 1 : MPI_PROC_NULL;
    above_ = process + 1 < processes ? process + 1 : MPI_PROC_NULL;
    halo_points_ = static_cast<std::size_t>(grid.levels) * static_cast<std::size_t>(grid.columns);
    for (Pinned& one : buffers_) one = allocate_pinned(halo_points_);
  }

  void run(Fields fields, int iterations) {
    for (int i = 0; i < iterations; ++i) {
      for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output}) {
        launcher_.run(ComputePhase{phase, grid_, fields, ranks_}, ranks_);
        exchange(result_of(phase, fields).data, halo_after(phase));
      }
      swap_in_and_out(fields);
    }
    launcher_.synchronize();
  }

 private:
  enum Buffer { from_below, from_above, to_below, to_above, buffers };
  struct Transfer {
    int process;  ///< MPI_PROC_NULL: none
    int row;
    Buffer buffer;
  };

  void exchange(double* field, const Halo& halo) {
    const int below_down = halo.down ? below_ : MPI_PROC_NULL, above_up = halo.up ? above_ : MPI_PROC_NULL;
    const int above_down = halo.down ? above_ : MPI_PROC_NULL, below_up = halo.up ? below_ : MPI_PROC_NULL;
    const Transfer sends[] = {{below_down, 1, to_below}, {above_up, grid_.rows, to_above}};
    const Transfer receives[] = {{below_up, 0, from_below}, {above_down, grid_.rows + 1, from_above}};
    if (!any(sends) && !any(receives)) return;
    copy_rows(field, sends, true);
    launcher_.synchronize();  // packed; and what was received before is unpacked
    const int count = static_cast<int>(halo_points_);
    MPI_Request requests[4];
    MPI_Request* request = requests;
    for (const Transfer& one : receives)
      CHECK_MPI(MPI_Irecv(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    for (const Transfer& one : sends)
      CHECK_MPI(MPI_Isend(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    CHECK_MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    copy_rows(field, receives, false);
  }
  double* memory(const Transfer& one) const { return buffers_[one.buffer].get(); }
  static bool any(const Transfer (&two)[2]) {
    return two[0].process != MPI_PROC_NULL || two[1].process != MPI_PROC_NULL;
  }
  void copy_rows(double* field, const Transfer (&two)[2], bool pack) {
    if (!any(two)) return;
    const auto packed = [&](const Transfer& one) {
      return Packed{field + grid_.at(0, one.row), one.process == MPI_PROC_NULL ? nullptr : memory(one)};
    };
    launcher_.run(CopyRows{grid_, packed(two[0]), packed(two[1]), pack}, grid_.levels);
  }

  const Grid grid_;
  const int ranks_;
  Launcher launcher_;
  int below_ = MPI_PROC_NULL, above_ = MPI_PROC_NULL;  ///< the processes with the rows before and behind
  std::size_t halo_points_ = 0;
  Pinned buffers_[buffers];
};

}  // namespace diffusion
