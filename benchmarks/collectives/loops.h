// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <algorithm>
#include <cstddef>

#include "benchmarks/dev/team.h"
#include "support/domain.h"

/// Loops of kernels: by all threads of all blocks. On the host one thread does it all.
namespace loops {

constexpr int threads = 256;

inline int blocks_for(std::size_t count) {
  constexpr std::size_t most = support::ranks_are_blocks ? 2048 : 1;
  return static_cast<int>(std::clamp<std::size_t>((count + threads - 1) / threads, 1, most));
}

/// body(i) for all i below `count`.
template <class Body>
MPIX_DEV_FN void for_all(std::size_t count, int block, int blocks, const Body& body) {
  const team::Team team = team::here();
  const auto size = static_cast<std::size_t>(team.size);
  for (std::size_t i = static_cast<std::size_t>(block) * size + static_cast<std::size_t>(team.index); i < count;
       i += static_cast<std::size_t>(blocks) * size)
    body(i);
}

}  // namespace loops
