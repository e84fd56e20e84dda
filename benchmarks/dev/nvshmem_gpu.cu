// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What dev and stencil measure, with NVSHMEM's calls in kernels in place of libmpix's: a peer to compare with. A GPU
// for each process.
//
//   mpiexec -n N nvshmem_gpu [pingpong] [barrier] [fanin] [rate] [stencil] [options]     (none named: all)
//
// pingpong  between a block of the first GPU and one of the last: a put with a signal by a block, and the wait for it
// barrier   of all blocks: of the grid, then of the GPUs by one block of each, then of the grid
// fanin     all blocks but one add 1 to a word of their own at that one, which waits for any of the words and takes 1
//           off: time of each. The sources do not wait, so that most words have something most of the time
// rate      blocks in pairs put 8 bytes with a signal, and wait for as many: by all threads of a block, or by one
// stencil   horizontal diffusion; the options are for it
//
// A figure is the median of several launches; of each the time of a launch with no steps is taken off.
#include <cooperative_groups.h>
#include <mpi.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "nvshmem_stencil.h"
#include "nvshmem_world.h"
#include "stencil_options.h"
#include "support/domain.h"

namespace {

/// A block among those of all GPUs, each of which has as many.
__device__ int rank_of_block() { return nvshmem_my_pe() * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); }
__device__ int all_blocks() { return nvshmem_n_pes() * static_cast<int>(gridDim.x); }

/// By a block, whose first thread polls.
__device__ void wait_for(std::uint64_t* word, std::uint64_t value) {
  if (threadIdx.x == 0) nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, value);
  __syncthreads();
}

/// The first block and the last in turns.
struct PingPong {
  char *to, *from;
  std::uint64_t* words;
  std::size_t bytes;
  std::uint64_t before;
  int steps;
  __device__ void operator()() const {
    const int me = rank_of_block(), last = all_blocks() - 1;
    if (me != 0 && me != last) return;
    const bool first = me == 0;
    // Both blocks may be of one GPU: then each has memory and a word of its own.
    const std::size_t other_block = gridDim.x - 1 - blockIdx.x;
    const int pe = nvshmem_n_pes() - 1 - nvshmem_my_pe();
    char* const target = to + other_block * bytes;
    for (std::uint64_t turn = before + 1; turn <= before + static_cast<std::uint64_t>(steps); ++turn) {
      if (first) nvshmemx_putmem_signal_block(target, from, bytes, words + other_block, turn, NVSHMEM_SIGNAL_SET, pe);
      wait_for(words + blockIdx.x, turn);
      if (!first) nvshmemx_putmem_signal_block(target, from, bytes, words + other_block, turn, NVSHMEM_SIGNAL_SET, pe);
    }
  }
};

struct Barrier {
  std::uint64_t before;
  int steps;
  __device__ void operator()() const {
    const auto grid = cooperative_groups::this_grid();
    for (int i = 0; i < steps; ++i) {
      grid.sync();
      if (blockIdx.x == 0) nvshmemx_barrier_all_block();
      grid.sync();
    }
  }
};

struct FanIn {
  std::uint64_t* words;
  std::uint64_t before;
  int steps;
  __device__ void operator()() const {
    if (threadIdx.x != 0) return;
    const int me = rank_of_block(), others = all_blocks() - 1;
    if (me != 0) {
      for (int i = 0; i < steps; ++i) nvshmemx_signal_op(words + me - 1, 1, NVSHMEM_SIGNAL_ADD, 0);
      return;
    }
    for (int i = 0; i < steps * others; ++i) {
      const std::size_t found =
          nvshmem_uint64_wait_until_any(words, static_cast<std::size_t>(others), nullptr, NVSHMEM_CMP_NE, 0);
      static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t), "what CUDA adds to");
      atomicAdd_system(reinterpret_cast<unsigned long long*>(words + found), ~0ull);
    }
  }
};

/// Each block and its partner, half of them away, to each other.
template <bool by_block>
struct Rate {
  static constexpr int ahead = 8;
  std::uint64_t *data, *words;  ///< of data two for each block: one that is put to, one that is put
  std::uint64_t before;
  int steps;

  __device__ void operator()() const {
    const int me = rank_of_block(), half = all_blocks() / 2, blocks = static_cast<int>(gridDim.x);
    if (me >= 2 * half || (!by_block && threadIdx.x != 0)) return;
    const int other = me < half ? me + half : me - half;
    for (int i = 0; i < steps; ++i) {
      put(other / blocks, other % blocks, before + static_cast<std::uint64_t>(i) + 1);
      if (i >= ahead) wait(before + static_cast<std::uint64_t>(i + 1 - ahead));
    }
    wait(before + static_cast<std::uint64_t>(steps));
  }

 private:
  __device__ void put(int pe, int block, std::uint64_t number) const {
    std::uint64_t *const to = data + 2 * block, *const from = data + 2 * blockIdx.x + 1;
    if constexpr (by_block)
      nvshmemx_putmem_signal_block(to, from, 8, words + block, number, NVSHMEM_SIGNAL_SET, pe);
    else
      nvshmem_putmem_signal(to, from, 8, words + block, number, NVSHMEM_SIGNAL_SET, pe);
  }
  __device__ void wait(std::uint64_t number) const {
    if constexpr (by_block)
      wait_for(words + blockIdx.x, number);
    else
      nvshmem_signal_wait_until(words + blockIdx.x, NVSHMEM_CMP_GE, number);
  }
};

bool prints() { return diffusion::process() == 0; }
int pes() { return diffusion::processes(); }

void ping_pong() {
  const std::size_t most = 4 << 20;
  const int blocks = pes() == 1 ? 2 : 1;
  const shmem::Memory<char> to(most * static_cast<std::size_t>(blocks)), from(most);
  if (prints()) std::printf("ping-pong, one way [us]\n%10s %10s %12s\n", "bytes", "time", "GB/s");
  for (const std::size_t bytes : {0, 8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576, 4194304}) {
    const shmem::Memory<std::uint64_t> words(static_cast<std::size_t>(blocks));
    const PingPong kernel{to.get(), from.get(), words.get(), bytes, 0, 0};
    const int threads = static_cast<int>(std::clamp<std::size_t>(bytes / 8, 32, 512));
    const double time = shmem::step_time(kernel, bytes > 65536 ? 200 : 4000, blocks, threads) / 2;
    if (prints()) std::printf("%10zu %10.2f %12.3f\n", bytes, time, static_cast<double>(bytes) / time / 1e3);
  }
}

void barriers() {
  if (prints()) std::printf("barrier [us]\n%10s %10s\n", "blocks", "time");
  for (const int each : {1, 8}) {
    const int here = support::multiprocessors() * each;
    const double time = shmem::step_time<128, 8>(Barrier{}, 1000, here, 128);
    if (prints()) std::printf("%10d %10.2f\n", here * pes(), time);
  }
}

void fan_in() {
  const int here = support::multiprocessors(), others = here * pes() - 1;
  const shmem::Memory<std::uint64_t> words(static_cast<std::size_t>(others));
  const double time = shmem::step_time(FanIn{words.get(), 0, 0}, 200, here, 64);
  if (prints()) std::printf("fan-in of %d, any source [us]: %.2f, each %.3f\n", others, time, time / others);
}

/// Million a second, of all.
template <bool by_block>
double rate_of(int here) {
  const auto blocks = static_cast<std::size_t>(here);
  const shmem::Memory<std::uint64_t> data(2 * blocks), words(blocks);
  const double time =
      shmem::step_time<128, 8>(Rate<by_block>{data.get(), words.get(), 0, 0}, 1000, here, by_block ? 64 : 32);
  return here * pes() / 2 * 2 / time;
}

void rate() {
  if (prints())
    std::printf("puts of 8 bytes with a signal, in pairs, by a block or by a thread\n%10s %14s %14s\n", "blocks",
                "million/s", "by a thread");
  for (const int each : {1, 8}) {
    const int here = support::multiprocessors() * each;
    const double by_block = rate_of<true>(here), by_thread = rate_of<false>(here);
    if (prints()) std::printf("%10d %14.2f %14.2f\n", here * pes(), by_block, by_thread);
  }
}

bool run(const diffusion::Options& options) {
  const shmem::World world;
  const auto wanted = [&](const char* name) {
    return options.words.empty() || std::find(options.words.begin(), options.words.end(), name) != options.words.end();
  };
  if (wanted("pingpong")) ping_pong();
  if (wanted("barrier")) barriers();
  if (wanted("fanin")) fan_in();
  if (wanted("rate")) rate();
  return !wanted("stencil") || diffusion::NvshmemStencil(options).run();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level));
  const diffusion::Program program{"nvshmem_gpu", {"pingpong", "barrier", "fanin", "rate", "stencil"}};
  const bool right = run(diffusion::read_options(argc, argv, program));
  CHECK_MPI(MPI_Finalize());
  return right ? 0 : 1;
}
