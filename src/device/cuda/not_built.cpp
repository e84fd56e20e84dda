// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Takes the place of cuda_device in a library that is built without it.
#include "device/cuda/cuda_device.h"

namespace mpix {

const bool cuda_is_built = false;

std::unique_ptr<Device> make_cuda_device(const Settings&, int) { return nullptr; }

}  // namespace mpix
