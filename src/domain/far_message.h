// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "mpix_device/far.h"

namespace mpix {

/// Messages of a link are called as the tasks that they come of; and one more: the answer to a get.
constexpr std::uint32_t reply_kind = 100;
constexpr std::uint32_t kind_of_message(TaskKind kind) { return static_cast<std::uint32_t>(kind); }

/// Of a task's word, or a message's.
constexpr std::uint32_t rank_in(std::uint64_t route) { return static_cast<std::uint32_t>(route); }

}  // namespace mpix
