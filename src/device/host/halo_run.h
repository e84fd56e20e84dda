// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "device/device.h"
#include "device/halo_launch.h"

namespace mpix {

/// Enqueue: threads as blocks; as a rule the one of the stream packs all messages, and then unpacks.
void launch_halo(Stream stream, HaloLaunch&& launch);
void launch_halo(Stream stream, const HaloGate& gate, const std::shared_ptr<const void>& keep);

}  // namespace mpix
