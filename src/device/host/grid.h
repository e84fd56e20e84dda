// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <optional>

#include "device/device.h"
#include "mpix_device/channel_param.h"

namespace mpix {

/// Enqueue function(team, argument), by so many threads at once: the blocks of a kernel that is none.
void launch_grid(Stream stream, unsigned blocks, void (*function)(const MPIX_Dev_team*, void*), void* argument);

/// Which of them the calling thread is, if any.
std::optional<unsigned> block_of_grid() noexcept;

}  // namespace mpix
