// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <vector>

#include "mpi_library.h"
#include "window_state.h"

namespace mpix {

/// The ranks, in the window's group, of the members of `group`: valid until this thread's next call.
///
/// What MPI said is kept until a group is freed, as a handle may mean another group then. Its calls about groups may
/// wait for the lock that a stream holds while it sends or looks for messages, which MPICH has one of: 20 µs for each
/// call of the program that names a group, where all else in an epoch's calls takes 5.
const std::vector<int>& ranks_in_window(const WinState& state, MPI_Group group);

}  // namespace mpix
