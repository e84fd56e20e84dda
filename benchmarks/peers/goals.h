// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <vector>

#include "report.h"

namespace peers {

/// Compare what was measured with what libmpix aims at: each goal, the worst ratio over its sizes, and whether
/// that is met. What a goal needs and was not measured is said.
void print_goals(const std::vector<Section>& sections, const Machine& machine, bool csv);

}  // namespace peers
