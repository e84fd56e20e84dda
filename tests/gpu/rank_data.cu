// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "rank_data.h"

#include <algorithm>
#include <string>

#include "../support/random.h"
#include "support/gpu_names.h"

namespace test {
namespace {

constexpr unsigned threads = 256;

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(std::clamp<std::size_t>(count / threads, 1, 64));
}

__device__ std::uint64_t word(const RankData& data, std::uint64_t number, std::size_t index) {
  std::uint64_t sum = 0;
  for (std::uint64_t from = data.first; from < data.end; ++from)
    sum += mix(mix(mix(number) + from) + (data.to << 40) + index);
  return sum;
}

__global__ void fill_kernel(std::uint64_t* at, std::size_t count, RankData data) {
  const std::uint64_t number = *data.number;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    at[i] = word(data, number, i);
}

__global__ void check_kernel(const std::uint64_t* at, std::size_t count, RankData data, Tally* tally) {
  const std::uint64_t number = *data.number;
  unsigned long long seen = 0, wrong = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x, ++seen)
    if (at[i] != word(data, number, i)) ++wrong;
  if (seen > 0) atomicAdd(&tally->seen, seen);
  if (wrong > 0) atomicAdd(&tally->wrong, wrong);
}

}  // namespace

void fill(cudaStream_t stream, std::uint64_t* at, std::size_t count, RankData data) {
  fill_kernel<<<blocks_for(count), threads, 0, stream>>>(at, count, data);
  CHECK_GPU(cudaGetLastError());
}

void check(cudaStream_t stream, const std::uint64_t* at, std::size_t count, RankData data, Tally* tally) {
  check_kernel<<<blocks_for(count), threads, 0, stream>>>(at, count, data, tally);
  CHECK_GPU(cudaGetLastError());
}

}  // namespace test
