// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu_kernels.h"

const faces::GpuKernels& faces::hip_kernels() {
  static const VendorKernels kernels;
  return kernels;
}
