// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <memory>

#include "wire/rail.h"

namespace mpix {

class CallRoom;

/// What moves data between nodes for the collectives of a communicator.
class RailService {
 public:
  virtual ~RailService() = default;
  /// By a stream that waits, and can do so itself. False: nothing moved.
  virtual bool serve() = 0;
  /// It waits no more.
  virtual void leave() = 0;
};

/// A part of a collective call between nodes, on its way into a stream.
struct RailLaunch {
  RailStep step;
  RailService* service = nullptr;
  std::uint32_t sharers = 1;  ///< see CollectiveLaunch
  CallRoom* room = nullptr;
  std::uint64_t capture = 0;         ///< that it becomes part of; 0: none
  std::shared_ptr<const void> keep;  ///< what both point to, alive for as long as it may run
};

}  // namespace mpix
