// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>

#include "mpi_library.h"

namespace mpix {

/// The bytes of `count` elements that lie without gaps, in the order of memory. Throws Error: for a
/// negative count, for no datatype, and for datatypes that are more than a run of bytes.
std::size_t contiguous_bytes(MPI_Count count, MPI_Datatype type, const char* side);

}  // namespace mpix
