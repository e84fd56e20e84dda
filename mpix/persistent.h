// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <optional>
#include <string>

#include "mpi_library.h"

namespace mpix {

/// What a persistent request was made for. MPI tells nobody, so the calls that make them are noted.
struct Persistent {
  bool sends = false;
  int peer = MPI_PROC_NULL, tag = 0;
  int partitions = 0;  ///< 0: the request has none
  bool buffered = false;

  /// "send to rank 3, tag 7", in the ranks of its communicator.
  std::string text() const;
};

/// Empty: it was not made by a call that libmpix has seen, or has been freed.
std::optional<Persistent> find_persistent(MPI_Request request);

/// A device request stands for it from now on: MPI_Request_free refuses. Negative: none does any more. False: one does
/// already, or there is no such request.
bool bind_persistent(MPI_Request request, int drequest);
void unbind_persistent(MPI_Request request);

}  // namespace mpix
