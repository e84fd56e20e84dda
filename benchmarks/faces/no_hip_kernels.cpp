// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Takes the place of hip_kernels.hip in a build without it.
#include <stdexcept>

#include "launch.h"

const faces::GpuKernels& faces::hip_kernels() { throw std::runtime_error("built without hip"); }
