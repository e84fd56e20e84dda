// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "net/fabric/handle.h"

namespace mpix {

/// The provider that `wanted` asks for ("sockets", "cxi", or "auto": the best that is there), by what it told of
/// itself. Throws Error, with a sentence on what to change, where there is none.
FabricInfo find_provider(const std::string& wanted);

/// Most operations of one endpoint that may be queued with this provider at a time, whatever a setting says.
std::size_t most_operations(const fi_info& info);

}  // namespace mpix
