// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "team_state.h"

namespace mpix {

/// Collective, before the communicator ends: waits for what was enqueued.
void end_collectives(MPI_Comm comm, CommState& state) noexcept;
/// Of all communicators that live: this rank's, so that no other has to agree.
void wait_for_collectives() noexcept;
/// Some communicator was not freed.
bool any_collectives_alive();

}  // namespace mpix
