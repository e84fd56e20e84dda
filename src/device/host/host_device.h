// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "device/device.h"

namespace mpix {

/// No GPU: streams are threads, device memory is memory that processes share.
std::unique_ptr<Device> make_host_device(const Settings& settings, int local_ranks);

}  // namespace mpix
