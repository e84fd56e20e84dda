// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Cores for each of the ranks of this node: its own where it is bound to some, else its share of them all.
double cores_per_rank(int local_ranks);

/// Whether a stream and the thread that enqueues have a core each.
inline bool has_cores_to_spare(int local_ranks) { return cores_per_rank(local_ranks) >= 2; }

/// The calling thread stays there. False: it cannot.
bool run_on_core(int core);

}  // namespace mpix
