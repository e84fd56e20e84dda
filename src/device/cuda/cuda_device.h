// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "device/device.h"

namespace mpix {

extern const bool cuda_is_built;

/// Null where there is no such GPU, or the back end is not built.
std::unique_ptr<Device> make_cuda_device(const Settings& settings, int local_ranks);

}  // namespace mpix
