// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mpix_device/layout.h"

namespace mpix {

/// The first error of a rank, as text: rank, call, reason, arguments.
std::string failure_text(const dev::RankNote& note, std::uint32_t rank);

/// Whether it is that the rank's list of notifications that nobody asked for was full.
bool is_list_full(const dev::RankNote& note);

/// What fills such a list: how many, and the three commonest sources with their tags. Empty: nothing does any more.
std::string commonest_text(const std::vector<dev::Notification>& pending);

}  // namespace mpix
