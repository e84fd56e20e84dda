// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Whether the launcher's variables in the environment say that the program's ranks are on several nodes. For what has
/// to be known before MPI_Init, which is the first that can be asked; false where nothing is said.
bool launcher_has_several_nodes();

/// Ranks on this node, as the launcher tells its processes; 1 where it does not.
int launcher_local_ranks();

}  // namespace mpix
