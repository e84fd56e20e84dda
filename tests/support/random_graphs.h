// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

namespace test {

/// Run `epochs` random epochs: sparse directed graphs of ranks, new groups in every epoch, random
/// puts over windows in all kinds of memory, random delays; every byte of every window is checked
/// in stream order after every epoch, and before the next one. Collective; the same arguments on
/// all ranks.
void run_random_graphs(std::uint64_t seed, int epochs);

}  // namespace test
