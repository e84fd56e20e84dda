// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace mpix {

/// For MPI_Finalize.
void end_domains() noexcept;

/// Whether some domain was created and not freed.
bool any_domain_alive();

}  // namespace mpix
