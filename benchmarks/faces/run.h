// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device.h"
#include "options.h"
#include "report.h"

namespace faces {

struct Measurement {
  Timing timing;
  int passed;
};

/// Collective: run one variant as the input says, from fresh values, and check its final result.
Measurement measure(Variant variant, const Options& options, const Problem& problem,
                    const Geometry& geometry, Device& device, int rank, int ranks);

}  // namespace faces
