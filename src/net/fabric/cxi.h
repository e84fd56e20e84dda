// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace mpix {

// What HPE Slingshot's provider has beyond libfabric. Each asks the object at hand, and finds nothing with every
// other provider. Written after the provider's header and manual; there was no such hardware to run it on.

/// How many triggered operations all processes of this job step may have queued on the NIC together.
std::optional<std::size_t> triggered_depth(fid_domain* domain);

/// A word that a CPU or a GPU stores v into to add v to the counter.
volatile std::uint64_t* doorbell_word(fid_cntr* counter);

}  // namespace mpix
