// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/check.h"
#include "device/gpu/launcher.h"
#include "device/halo_launch.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr unsigned halo_threads = 256;

struct HaloBlock {
  __device__ std::uint32_t index() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  template <class What>
  __device__ bool together(What what) const {
    __syncthreads();
    return __syncthreads_or(threadIdx.x == 0 && what()) != 0;
  }
};

__global__ void __launch_bounds__(halo_threads) run_halo(const GPU_GRID_CONSTANT HaloRun halo) {
  run_halo_block(halo, blockIdx.x, HaloBlock{});
}

inline const Kernel& halo_kernel() {
  static const Kernel kernel(run_halo);
  return kernel;
}

inline void launch_halo(const HaloLaunch& launch, gpuStream_t stream) {
  HaloRun run = launch.run;
  MPIX_CHECK_GPU(gpu_launch(halo_kernel().function, dim3(run.blocks), halo_threads, &run, sizeof run, stream, false));
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
