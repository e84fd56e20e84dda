// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/collective_kernel.h"
#include "wire/collective_direct.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

__global__ void __launch_bounds__(collective_threads) run_direct(const GPU_GRID_CONSTANT Collective call) {
  __shared__ DirectTable table;
  gpu_wait_for_front();
  gpu_let_next_start();
  const CollectiveBlock crew{call, blockIdx.x};
  (void)DirectCall<CollectiveBlock>(crew, call, table).run();
}

const Kernel& direct_kernel() {
  static const Kernel kernel(run_direct);
  return kernel;
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
