// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>

#include "mpix_device/layout.h"

namespace mpix {

/// The first error of a rank, as text: rank, call, reason, arguments.
std::string failure_text(const dev::RankNote& note, std::uint32_t rank);

}  // namespace mpix
