// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Takes the place of cuda_kernels.cu in a build without it.
#include <stdexcept>

#include "launch.h"

const faces::GpuKernels& faces::cuda_kernels() { throw std::runtime_error("built without cuda"); }
