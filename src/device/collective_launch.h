// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <memory>

#include "wire/collective.h"
#include "wire/collective_tree.h"
#include "wire/way_choice.h"

namespace mpix {

class CallRoom;

/// A collective call on its way into a stream.
struct CollectiveLaunch {
  Collective call;
  WayCandidates ways{};       ///< with some, `call` says nothing of its way
  TreePlace tree{};           ///< with operands: the call goes along a tree
  std::uint32_t sharers = 1;  ///< ranks that run kernels on the same processor at the same time, as far as is known
  CallRoom* room = nullptr;   ///< the communicator's; null: no call of it waits in kernels, or they take no places
  std::uint64_t capture = 0;  ///< that it becomes part of; 0: none
  std::shared_ptr<const void> keep;  ///< what it points to, alive for as long as it may run
};

}  // namespace mpix
