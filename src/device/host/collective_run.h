// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/collective_launch.h"
#include "device/host/bell.h"

namespace mpix {

/// A collective call, on the calling thread; a way that it chooses is written into `launch`. False: a wait was
/// released, or the ranks call different things.
bool run_on_host(CollectiveLaunch& launch, const Polling& polling);

}  // namespace mpix
