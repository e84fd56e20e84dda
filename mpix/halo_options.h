// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "base/settings.h"
#include "mpi_library.h"
#include "mpix.h"
#include "notify/halo.h"

namespace mpix {

constexpr int most_halo_messages = 4096;

/// How sends go, and how MPI is asked what is over.
struct HaloCalls {
  bool send_blocks = false;  ///< by MPI_Send, one after another
  bool tests_any = false;    ///< by MPI_Testany; or by MPI_Testsome
  std::uint64_t gather = 0;  ///< bytes of the longest message that goes with others; 0: none does
};

struct HaloOptions {
  Halo::Options engine;
  HaloCalls calls;
  bool by_memory = true;  ///< what can
};

/// From the info keys of MPIX_Halo_create. Throws Error.
HaloOptions halo_options(MPI_Info info, MPI_Comm comm, const Device& device, const Settings& settings);

/// What the program says of its messages, checked.
std::vector<HaloContent> halo_contents(int count, const MPIX_Halo_message* messages, MPI_Comm comm);

}  // namespace mpix
