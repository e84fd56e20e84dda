// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Before MPI_Finalize: channels that were not freed serve no more, and their kernels wait no more.
void end_channels() noexcept;
/// Some channel was not freed.
bool any_channel_alive();

}  // namespace mpix
