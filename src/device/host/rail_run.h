// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/host/bell.h"
#include "device/rail_launch.h"

namespace mpix {

/// By the thread of a host stream. False: it was released.
bool run_on_host(const RailLaunch& launch, const Polling& polling);

}  // namespace mpix
