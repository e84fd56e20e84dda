// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

#include "wire/halo.h"

namespace mpix {

/// An exchange of a halo on its way into a stream.
struct HaloLaunch {
  HaloRun run;
  bool captured = false;
  std::shared_ptr<const void> keep;  ///< what it points to, alive for as long as it may run
};

}  // namespace mpix
