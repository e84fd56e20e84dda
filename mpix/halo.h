// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// Before MPI_Finalize: halos that were not freed are served no more, and their kernels wait no more.
void end_halos() noexcept;
/// Some halo was not freed.
bool any_halo_alive();

}  // namespace mpix
