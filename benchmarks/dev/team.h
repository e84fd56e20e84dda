// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

/// The threads of a rank, in a kernel of the domain or in another. On the host it is one.
namespace team {

struct Team {
  int index, size;
};

MPIX_DEV_FN Team here() {
#if MPIX_ON_DEVICE
  return Team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
#else
  return Team{0, 1};
#endif
}

}  // namespace team
