// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "mpi_library.h"

namespace mpix {

/// Another communicator of the same ranks, whose calls meet nobody else's; errors are returned. Collective. It is no
/// duplicate: that would have copies of the program's attributes, which its functions make and delete.
MPI_Comm own_comm_like(MPI_Comm comm);

}  // namespace mpix
