// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

namespace mpix {

/// What a rank has called that ends its part in a window. Where a wait for it does not end, that is why, as a rule: the
/// hang reports of its node say it, and of MPI_Finalize those of other nodes, too.
///
/// | written by                                                | read by               | order                        |
/// |-----------------------------------------------------------|-----------------------|------------------------------|
/// | the rank: MPI_Win_free and MPI_Finalize, before they wait | reports of those that | none: nothing else is read   |
/// | for anything; `none` where MPI_Win_free fails             | wait for the rank     | because of it                |
///
/// A waiting rank may read it however far the other rank has come, for its own window lives. On the host it reads a
/// mapping of its own, and the place is no other window's before all ranks have left it. On a GPU a process keeps its
/// memory until it ends (device/gpu/memory.h), but may use it for another window, if MPI_Win_free lets it go on without
/// the reader: of the MPI libraries that we know none does. A wrong remark in a report would be all.
enum class Farewell : std::uint64_t { none, win_free, finalize };

}  // namespace mpix
