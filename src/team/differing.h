// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

namespace mpix {

/// "2 on rank 0, 4 on ranks 1 and 2": what each rank has. Empty where all have the same.
std::string differing(const std::vector<std::string>& by_rank);

}  // namespace mpix
