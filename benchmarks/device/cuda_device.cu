// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu_device.h"

std::unique_ptr<bench::Device> bench::make_cuda_device(int local_rank) { return make_gpu_device(local_rank); }
