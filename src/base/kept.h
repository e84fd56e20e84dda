// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>

namespace mpix {

/// Until the process ends, as nobody knows whether it is still used. Checkers of leaks find it.
void keep_for_ever(std::shared_ptr<const void> what) noexcept;

}  // namespace mpix
