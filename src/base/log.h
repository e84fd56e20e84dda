// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string_view>

#include "base/settings.h"

namespace mpix {

/// Lines on standard error, "mpix[rank] text", each written whole. One log for the process.
void set_log(LogLevel level, int rank);
bool logs(LogLevel level);
/// Takes no memory: also for those that have none.
void log(LogLevel level, std::string_view text) noexcept;

}  // namespace mpix
