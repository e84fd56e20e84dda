// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>

#include "gpu/device.h"

namespace mpix {

/// The host's kernel: run a program on the calling thread. False when its wait was released.
bool run_on_host(const Launch& launch, std::chrono::nanoseconds spin);

}  // namespace mpix
