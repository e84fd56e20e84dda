// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>

#include "mpi_library.h"

namespace mpix {

struct ByteRun {
  std::size_t bytes = 0;
  std::size_t first = 0;  ///< from the address of the buffer
};

/// The bytes of `count` elements that lie without gaps, in the order of memory; of the first of so many blocks, which
/// follow each other without gaps, too. Throws Error: for a negative count, for no datatype, and for elements that are
/// more than one run of bytes, or begin before their buffer.
ByteRun run_of_bytes(MPI_Count count, MPI_Datatype type, const char* side, int blocks = 1);

/// As far as MPI checks its arguments. `errors_return`: a communicator on which they do.
bool is_committed(MPI_Datatype type, MPI_Comm errors_return);

}  // namespace mpix
