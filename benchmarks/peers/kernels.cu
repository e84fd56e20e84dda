// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cuda_runtime.h>
#include <cstdio>

#include "kernels.h"
#include "support/abort.h"

namespace peers {
namespace {

constexpr unsigned blocks_per_slot = 32, threads = 256;

__device__ std::uint64_t word_of(const Slot& slot, unsigned slot_number, unsigned round, std::size_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15ull ^ static_cast<std::uint64_t>(slot.origin + 1) << 56 ^
         static_cast<std::uint64_t>(slot.target + 1) << 48 ^ static_cast<std::uint64_t>(slot_number + 1) << 40 ^
         static_cast<std::uint64_t>(round) << 8;
}

/// Blocks of a column of the grid share a slot.
template <class Visit>
__device__ void for_words(const Slot& slot, Visit visit) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < slot.words; i += gridDim.x * blockDim.x) visit(i);
}

__global__ void next_round(unsigned* round) { ++*round; }

__global__ void fill(char* memory, const Slot* slots, const unsigned* round) {
  const Slot slot = slots[blockIdx.y];
  auto* words = reinterpret_cast<std::uint64_t*>(memory + slot.offset);
  for_words(slot, [&](std::size_t i) { words[i] = word_of(slot, blockIdx.y, *round, i); });
}

__global__ void check(const char* memory, const Slot* slots, const unsigned* round, unsigned long long* wrong) {
  const Slot slot = slots[blockIdx.y];
  const auto* words = reinterpret_cast<const std::uint64_t*>(memory + slot.offset);
  unsigned long long mine = 0;
  for_words(slot, [&](std::size_t i) { mine += words[i] != word_of(slot, blockIdx.y, *round, i); });
  if (mine) atomicAdd(wrong, mine);
}

__global__ void user_kernel() {}

__global__ void begin_loop(cudaGraphConditionalHandle loop, const unsigned* total, unsigned* left) {
  *left = *total;
  cudaGraphSetConditional(loop, *total > 0);
}

__global__ void count_down(cudaGraphConditionalHandle loop, unsigned* left) {
  const unsigned after = *left - 1;
  *left = after;
  cudaGraphSetConditional(loop, after > 0);
}

dim3 grid_for(std::size_t slots) { return dim3(blocks_per_slot, static_cast<unsigned>(slots)); }

}  // namespace

void launch_next_round(unsigned* round, cudaStream_t stream) {
  next_round<<<1, 1, 0, stream>>>(round);
  CHECK_CUDA(cudaGetLastError());
}

void launch_fill(char* memory, const Slot* slots, std::size_t count, const unsigned* round, cudaStream_t stream) {
  fill<<<grid_for(count), threads, 0, stream>>>(memory, slots, round);
  CHECK_CUDA(cudaGetLastError());
}

void launch_check(const char* memory, const Slot* slots, std::size_t count, const unsigned* round,
                  unsigned long long* wrong, cudaStream_t stream) {
  check<<<grid_for(count), threads, 0, stream>>>(memory, slots, round, wrong);
  CHECK_CUDA(cudaGetLastError());
}

void launch_user_kernel(cudaStream_t stream) { user_kernel<<<1, 32, 0, stream>>>(); }

void launch_begin_loop(cudaGraphConditionalHandle loop, const unsigned* total, unsigned* left, cudaStream_t stream) {
  begin_loop<<<1, 1, 0, stream>>>(loop, total, left);
  CHECK_CUDA(cudaGetLastError());
}

void launch_count_down(cudaGraphConditionalHandle loop, unsigned* left, cudaStream_t stream) {
  count_down<<<1, 1, 0, stream>>>(loop, left);
  CHECK_CUDA(cudaGetLastError());
}

}  // namespace peers
