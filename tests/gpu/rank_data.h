// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// What calls on GPUs send and get, whatever they are and in whichever iteration. Knows no MPI.
namespace test {

/// What rank `first` has for rank `to`, in words of 8 bytes, in the iteration whose number lies at `number` when the
/// stream gets there; summed over the ranks up to `end`.
struct RankData {
  const std::uint64_t* number;
  std::uint64_t first, end, to;
};
void fill(cudaStream_t stream, std::uint64_t* at, std::size_t count, RankData data);

struct Tally {
  unsigned long long seen, wrong;
};
/// Counts on.
void check(cudaStream_t stream, const std::uint64_t* at, std::size_t count, RankData data, Tally* tally);

}  // namespace test
