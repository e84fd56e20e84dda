// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/collective_kernel.h"
#include "wire/collective_chosen.h"
#include "wire/collective_guarded.h"
#include "wire/collective_tree.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

__global__ void __launch_bounds__(collective_threads) run_direct(const GPU_GRID_CONSTANT Collective call) {
  __shared__ PlaceTable table;
  gpu_wait_for_front();
  if (call.lets_next_start) gpu_let_next_start();
  const CollectiveBlock crew{call, blockIdx.x};
  (void)DirectCall<CollectiveBlock>(crew, call, table).run();
}

__global__ void __launch_bounds__(collective_threads) run_chosen(const GPU_GRID_CONSTANT ChosenArguments arguments) {
  __shared__ PlaceTable table;
  __shared__ Collective call;
  static_assert(sizeof call % 8 == 0, "copied by words");
  for (std::uint32_t i = threadIdx.x; i < sizeof call / 8; i += blockDim.x)
    reinterpret_cast<std::uint64_t*>(&call)[i] = reinterpret_cast<const std::uint64_t*>(&arguments.call)[i];
  __syncthreads();
  gpu_wait_for_front();
  if (arguments.call.lets_next_start) gpu_let_next_start();
  const CollectiveBlock crew{call, blockIdx.x};
  (void)ChosenCall<CollectiveBlock, false>(crew, call, arguments.ways, table).run();
}

__global__ void __launch_bounds__(collective_threads) run_half(const GPU_GRID_CONSTANT Collective call) {
  gpu_wait_for_front();
  const CollectiveBlock crew{call, blockIdx.x};
  (void)GuardedCall<CollectiveBlock>(crew, call).run();
}

__global__ void __launch_bounds__(collective_threads) run_tree(const GPU_GRID_CONSTANT TreeArguments arguments) {
  __shared__ PlaceTable table;
  gpu_wait_for_front();
  if (arguments.call.lets_next_start) gpu_let_next_start();
  const CollectiveBlock crew{arguments.call, blockIdx.x};
  (void)TreeCall<CollectiveBlock>(crew, arguments.call, table, arguments.tree).run();
}

const Kernel& tree_kernel() {
  static const Kernel kernel(run_tree);
  return kernel;
}

const Kernel& chosen_kernel() {
  static const Kernel kernel(run_chosen);
  return kernel;
}

const Kernel& direct_kernel() {
  static const Kernel kernel(run_direct);
  return kernel;
}

const Kernel& guarded_kernel() {
  static const Kernel kernel(run_half);
  return kernel;
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
