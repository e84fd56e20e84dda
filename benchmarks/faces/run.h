// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "report.h"
#include "setup.h"

namespace faces {

struct Measurement {
  Timing timing;
  int passed;
};

/// Collective: run one variant as the input says, from fresh values, and check its final result.
Measurement measure(const Variant& variant, const Setup& setup, const Geometry& geometry);

}  // namespace faces
