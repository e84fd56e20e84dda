// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "domain/domain.h"

namespace mpix {

/// Threads in place of blocks: `function(param, argument)` by all ranks of this process at once, as a task of a host
/// stream. The domain has to live until all have called MPIX_Dev_finish.
void launch_host_ranks(Domain& domain, void (*function)(MPIX_Dev_param, void*), void* argument, Stream stream);

}  // namespace mpix
