// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "halo_ends.h"
#include "halo_options.h"
#include "mpi_library.h"
#include "mpix.h"
#include "notify/halo.h"

namespace mpix {

/// Persistent requests of MPI.
std::unique_ptr<HaloTransport> messages_of_mpi(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo,
                                               const HaloTags& tags, const HaloCalls& calls);

}  // namespace mpix
