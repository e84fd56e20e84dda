// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/collective_kernel.h"
#include "wire/collective_lines.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

__global__ void __launch_bounds__(collective_threads) run_lines(const GPU_GRID_CONSTANT Collective call) {
  gpu_wait_for_front();
  if (call.lets_next_start) gpu_let_next_start();
  (void)run_by_lines(CollectiveBlock{call, blockIdx.x}, call);
}

const Kernel& kernel_by_lines() {
  static const Kernel kernel(run_lines);
  return kernel;
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
