// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "team_state.h"

namespace mpix {

/// Collective, before the communicator ends: waits for what was enqueued.
void end_collectives(MPI_Comm comm, CommState& state) noexcept;
/// In MPI_Finalize, of all communicators that live.
void wait_for_collectives() noexcept;
/// The communicator to which memory of this allocation is attached; empty: none.
std::string whose_attachment(const void* base);
/// Some communicator was not freed.
bool any_collectives_alive();

}  // namespace mpix
