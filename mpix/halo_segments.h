// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "halo_ends.h"
#include "mpi_library.h"
#include "mpix.h"
#include "notify/halo.h"
#include "notify/halo_segment.h"

namespace mpix {

/// What goes by memory of a halo: of what may, that of pairs of ranks that could both map the other's segment.
struct HaloSegments {
  std::unique_ptr<HaloSegment> own;  ///< null: nothing does
  std::vector<HaloEnd> ends;         ///< by cargo
};

/// Collective among the ranks that share messages.
HaloSegments connect_segments(MPI_Comm comm, const MPIX_Halo_message* messages, const Halo& halo, const HaloTags& tags,
                              Device& device);

}  // namespace mpix
