// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "base/error.h"
#include "device/gpu/check.h"
#include "device/gpu/launcher.h"
#include "device/halo_launch.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr unsigned halo_threads = 256;

struct HaloBlock {
  __device__ std::uint32_t index() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void meet() const { __syncthreads(); }
  __device__ bool all(bool well) const { return __syncthreads_and(well ? 1 : 0) != 0; }
  template <class What>
  __device__ bool together(What what) const {
    __syncthreads();
    return __syncthreads_or(threadIdx.x == 0 && what()) != 0;
  }
};

__global__ void __launch_bounds__(halo_threads) run_halo(const GPU_GRID_CONSTANT HaloRun halo) {
  gpu_wait_for_front();
  // It waits there, set up; and keeps its places, so not behind one that stays for many steps.
  if (!halo.is_gated) gpu_let_next_start();
  (void)run_halo_block(halo, blockIdx.x, HaloBlock{});
}

inline const Kernel& halo_kernel() {
  static const Kernel kernel(run_halo);
  return kernel;
}

inline void launch_halo(const HaloLaunch& launch, gpuStream_t stream) {
  HaloRun run = launch.run;
  const Kernel& kernel = halo_kernel();
  // In graphs alone: a stream may be destroyed behind the launch (launch_history.h).
  const bool dependent = launch.captured && launch.leaves_room && kernel.may_be_dependent;
  MPIX_CHECK_GPU(gpu_launch(kernel.function, dim3(run.blocks), halo_threads, &run, sizeof run, stream, dependent));
}

__global__ void run_halo_gate(const GPU_GRID_CONSTANT HaloGate gate) {
  if (gate.holds())
    (void)wait_for_word(gate.halo, gate.word(), gate.value);
  else
    tell_halo(gate.halo, gate.word(), gate.value);
  if (gate.passed) store_release(gate.passed, gate.number);
}

inline const Kernel& halo_gate_kernel() {
  static const Kernel kernel(run_halo_gate);
  return kernel;
}

/// A memory operation takes no multiprocessor while it waits, and waits for one word. Where there are none a kernel
/// does it.
inline void pass_halo_gate(HaloGate gate, gpuStream_t stream, bool by_memory_op) {
  if (!by_memory_op || gate.what == HaloGate::What::after) {
    MPIX_CHECK_GPU(gpu_launch(halo_gate_kernel().function, dim3(1), 1, &gate, sizeof gate, stream, false));
    return;
  }
  const MemoryOp ops[] = {{gate.word(), gate.value, gate.holds()}, {gate.passed, gate.number, false}};
  const std::string error = gpu_enqueue_memory_ops(stream, ops, gate.passed ? 2 : 1);
  if (!error.empty()) throw Error(Fault::other, error);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
