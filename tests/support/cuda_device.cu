// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "gpu_device.h"

namespace test {

std::unique_ptr<Device> make_cuda_device(int rank) { return make_gpu_device(support::make_cuda_platform(rank)); }

}  // namespace test
