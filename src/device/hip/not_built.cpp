// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Takes the place of hip_device in a library that is built without it.
#include "device/hip/hip_device.h"

namespace mpix {

const bool hip_is_built = false;

std::unique_ptr<Device> make_hip_device(const Settings&, int) { return nullptr; }

}  // namespace mpix
