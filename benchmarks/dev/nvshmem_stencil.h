// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda/atomic>
#include <vector>

#include "diffusion.h"
#include "nvshmem_world.h"
#include "stencil_options.h"
#include "stencil_rows.h"
#include "support/abort.h"

/// The diffusion in one kernel for all iterations, as `dev` of stencil.cpp has it, with NVSHMEM between the GPUs.
/// Blocks of one GPU share the rows, and tell each other by words in its memory.
namespace diffusion {

/// A block's words: the number of the last row that the block before it, or behind it, has finished for it. These
/// rows are counted, two of each neighbour in an iteration.
struct alignas(64) Finished {
  std::uint64_t below, above;
};

/// Where a block exchanges its rows.
struct Halos {
  Grid grid;
  Finished* finished;  ///< of each block of a GPU
  Notify notify;
};

/// To the halo of another GPU, by all threads. Out of line, as exchange() is: blocks that have no such neighbour are
/// not to save the registers that NVSHMEM needs.
static __device__ __noinline__ void put_row(Halos halos, double* field, int row, int target_row, std::uint64_t* word,
                                            std::uint64_t number, int pe) {
  const Grid& grid = halos.grid;
  for (int level = 0; level < grid.levels; ++level) {
    double *const to = field + grid.at(level, target_row), *const from = field + grid.at(level, row);
    if (halos.notify == Notify::each)
      nvshmemx_putmem_signal_nbi_block(to, from, grid.row_bytes(), word, 1, NVSHMEM_SIGNAL_ADD, pe);
    else
      nvshmemx_putmem_nbi_block(to, from, grid.row_bytes(), pe);
  }
  if (halos.notify == Notify::each || threadIdx.x != 0) return;
  nvshmem_fence();
  nvshmemx_signal_op(word, number, NVSHMEM_SIGNAL_SET, pe);
}

using Word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;

/// To a block of this GPU, behind __syncthreads.
inline __device__ void tell(std::uint64_t* word, std::uint64_t number) {
  if (threadIdx.x == 0) Word(*word).store(number, cuda::memory_order_release);
}

/// By one thread.
inline __device__ void wait_for_block(std::uint64_t* word, std::uint64_t number) {
  while (Word(*word).load(cuda::memory_order_acquire) < number) {
  }
}
inline __device__ void wait_for_pe(const Halos& halos, std::uint64_t* word, std::uint64_t number) {
  const int rows = halos.notify == Notify::each ? halos.grid.levels : 1;
  nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, number * static_cast<std::uint64_t>(rows));
  // It does not say that the halo is then read from where it was put, rather than from a cache.
  cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_system);
}

/// Out of line: what it needs is not to take registers from what computes. Internal, so that the compiler knows the
/// kernel that calls it, and keeps to its registers.
static __device__ __noinline__ void exchange(Halos halos, double* field, Phase phase, std::uint64_t number) {
  const Halo halo = halo_after(phase);
  const int block = static_cast<int>(blockIdx.x), last_block = static_cast<int>(gridDim.x) - 1;
  const int pe = nvshmem_my_pe(), last_pe = nvshmem_n_pes() - 1, rows = halos.grid.rows;
  Finished* const mine = halos.finished + block;
  __syncthreads();
  if (halo.down && block > 0)
    tell(&mine[-1].above, number);
  else if (halo.down && pe > 0)
    put_row(halos, field, 1, rows + 1, &halos.finished[last_block].above, number, pe - 1);
  if (halo.up && block < last_block)
    tell(&mine[1].below, number);
  else if (halo.up && pe < last_pe)
    put_row(halos, field, rows, 0, &halos.finished[0].below, number, pe + 1);
  if (threadIdx.x == 0) {
    if (halo.down && block < last_block)
      wait_for_block(&mine->above, number);
    else if (halo.down && pe < last_pe)
      wait_for_pe(halos, &mine->above, number);
    if (halo.up && block > 0)
      wait_for_block(&mine->below, number);
    else if (halo.up && pe > 0)
      wait_for_pe(halos, &mine->below, number);
  }
  __syncthreads();
}

/// What a block does.
struct NvshmemDiffusion {
  Fields fields;
  Halos halos;
  std::uint64_t before;  ///< iterations of earlier launches
  int iterations;
  bool exchanges;

  __device__ void operator()() const {
    const Patch patch(halos.grid, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    Fields now = fields;
    for (int i = 0; i < iterations; ++i) {
      const std::uint64_t rows_before = 2 * (before + static_cast<std::uint64_t>(i));
      for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output}) {
        compute_in_line(phase, halos.grid, patch, now);
        if (exchanges)
          exchange(halos, result_of(phase, now).data, phase, rows_before + (phase == Phase::output ? 2 : 1));
      }
      swap_in_and_out(now);
    }
  }
};

class NvshmemStencil {
 public:
  explicit NvshmemStencil(const Options& options)
      : options_(options),
        grid_{options.columns, options.rows, options.levels},
        blocks_(options.ranks > 0 ? options.ranks : blocks_that_fit()),
        memory_(5 * grid_.points()),
        finished_(static_cast<std::size_t>(blocks_)),
        fields_{field(0), field(1), field(2), field(3), field(4)} {}

  bool run() {
    const std::vector<Row> rows = {{"nvshmem", [this](int iterations) { launch(iterations, true); }, true},
                                   {"alone", [this](int iterations) { launch(iterations, false); }, false}};
    constexpr std::size_t alone = 1;
    return diffusion::run(rows, alone, grid_, fields_, options_, blocks_);
  }

 private:
  /// All GPUs have as many: a block finds those of its neighbours at the same addresses.
  int blocks_that_fit() const {
    int here = shmem::blocks_that_fit<NvshmemDiffusion, most_threads, ranks_each>(options_.threads), fit = 0;
    CHECK_MPI(MPI_Allreduce(&here, &fit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    return std::min(fit, options_.rows / 2);
  }
  Field field(std::size_t number) const { return Field{memory_.get() + number * grid_.points(), -1}; }
  void launch(int iterations, bool exchanges) {
    const Halos halos{grid_, finished_.get(), options_.notify};
    shmem::run<most_threads, ranks_each>(NvshmemDiffusion{fields_, halos, iterations_, iterations, exchanges}, blocks_,
                                         options_.threads);
    if (exchanges) iterations_ += static_cast<std::uint64_t>(iterations);
  }

  const Options options_;
  const Grid grid_;
  const int blocks_;
  shmem::Memory<double> memory_;
  shmem::Memory<Finished> finished_;
  const Fields fields_;
  std::uint64_t iterations_ = 0;
};

}  // namespace diffusion
