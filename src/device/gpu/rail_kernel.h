// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "device/gpu/collective_kernel.h"
#include "device/rail_launch.h"
#include "wire/rail_steps.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// The crew of a GPU (wire/rail_steps.h): several blocks only where none waits for another.
struct RailBlocks {
  __device__ Workers workers() const { return Workers{blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x}; }
  __device__ bool agree(bool yes) const { return !__syncthreads_or(!yes); }
  __device__ bool leads() const { return blockIdx.x == 0 && threadIdx.x == 0; }
  __device__ bool await(const RailStep& step, std::uint64_t number) const {
    for (std::uint32_t polls = 1; load_relaxed(&step.places.words->arrived) < number; ++polls)
      if (polls % polls_between_looks == 0 && load_relaxed(&step.host->released) != 0) return false;
    (void)load_acquire(&step.places.words->arrived);
    return true;
  }
  /// The host has refused those.
  template <class Operand>
  __device__ bool combine_by_function(const RailStep&, std::uint32_t, Operand) const {
    return false;
  }

 private:
  static constexpr std::uint32_t polls_between_looks = 256;  // through the bus, each
};

__global__ void __launch_bounds__(collective_threads) run_rail(const GPU_GRID_CONSTANT RailStep step) {
  gpu_wait_for_front();
  if (step.lets_next_start) gpu_let_next_start();
  const RailBlocks crew;
  (void)RailSteps<RailBlocks>(crew, step).run();
}

const Kernel& rail_kernel() {
  static const Kernel kernel(run_rail);
  return kernel;
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
