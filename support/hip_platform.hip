// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "support/gpu_platform.h"

std::unique_ptr<support::Platform> support::make_hip_platform(int local_rank) { return make_gpu_platform(local_rank); }
