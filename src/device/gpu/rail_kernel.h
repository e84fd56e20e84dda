// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/gpu/check.h"
#include "device/gpu/collective_kernel.h"
#include "device/gpu/launcher.h"
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
  gpu_let_next_start();
  const RailBlocks crew;
  (void)RailSteps<RailBlocks>(crew, step).run();
}

inline const Kernel& rail_kernel() {
  static const Kernel kernel(run_rail);
  return kernel;
}
inline void load_rail_kernels() { (void)rail_kernel(); }

/// Small steps are one block's, with all phases. Else those that move data have several blocks, and each is a launch.
inline void launch_rail(const RailLaunch& launch, gpuStream_t stream) {
  constexpr std::uint64_t most_of_a_block = 64 * 1024, most_blocks = 32;
  const RailStep& all = launch.step;
  const RailPlaces& p = all.places;
  const auto launch_phases = [&](std::uint32_t phases, std::uint64_t bytes) {
    if ((all.phases & phases) == 0) return;
    RailStep step = all;
    step.phases = all.phases & phases;
    const std::uint64_t blocks = std::clamp<std::uint64_t>(bytes / (most_of_a_block / 2), 1, most_blocks);
    MPIX_CHECK_GPU(gpu_launch(rail_kernel().function, dim3(static_cast<unsigned>(blocks)), collective_threads, &step,
                              sizeof step, stream, launch.captured && rail_kernel().may_be_dependent));
  };
  const std::uint64_t packs = all.does(RailStep::pack) ? p.locals * p.columns * all.bytes : 0;
  const std::uint64_t fills = all.does(RailStep::fill) ? p.partners * all.filling.blocks * all.bytes : 0;
  const bool by_rank = all.taking.how == RailStep::Take::combine_ranks || all.taking.how == RailStep::Take::ranks;
  const std::uint64_t takes = all.does(RailStep::take) ? (by_rank ? p.ranks : p.nodes) * all.bytes : 0;
  if (packs + fills + takes <= most_of_a_block) return launch_phases(all.phases, 0);
  launch_phases(RailStep::pack, packs);
  launch_phases(RailStep::fill, fills);
  launch_phases(RailStep::meet, 0);
  launch_phases(RailStep::take, takes);
  launch_phases(RailStep::leave, 0);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
