// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/device.h"
#include "device/host/bell.h"

namespace mpix {

/// The host's kernel: run a program on the calling thread. False when its wait was released.
bool run_on_host(const Launch& launch, const Polling& polling);

/// Memory operations, one after another. False when their wait was released.
bool run_on_host(const MemoryOps& memory, const Polling& polling);

}  // namespace mpix
