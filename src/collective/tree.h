// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "wire/collective_tree.h"

namespace mpix {

/// Two levels: the ranks of a GPU, and those that lead them. In each a star, whose middle is the leader, or a binomial
/// tree. The dissertation names a shape by both levels: GSB for a star, BTB for a binomial tree.
struct TreeShape {
  bool binomial_on_gpu, binomial_between;
};

/// `gpus`: by rank. The root leads the ranks of its GPU, elsewhere the lowest does. Operands: first those of the GPU,
/// then those that come from other GPUs, each in the order of ranks; but a rank's own of a binomial tree is the first.
TreePlace place_in_tree(TreeShape shape, const std::vector<std::uint64_t>& gpus, std::uint32_t me, std::uint32_t root);

}  // namespace mpix
