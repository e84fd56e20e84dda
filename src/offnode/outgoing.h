// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "net/network.h"
#include "team/neighbourhood.h"
#include "wire/relayed.h"

namespace mpix {

/// At an origin, for one target: the messages of its plans, and the pinned memory from which the network takes them.
/// Kernels pack the data there; the relay writes the entries in front of them.
///
/// All plans use the same range, each from its begin: an epoch is packed when the one before is over (wire/relayed.h).
/// Where a plan needs more there is a new range, for it and those after it. A message, and a range that is not the
/// newest, go when the plans that know them have ended, and all that they have sent is over.
///
/// (To allocate pinned memory waits for no kernel, and to give it back neither: device/gpu/memory.h.)
class Outgoing {
 public:
  Outgoing(Device& device, Network& network, RelayedOut& out) : device_(device), network_(network), out_(out) {}
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  /// Of the range for so many. Sizes are few, so that memory of one range serves as another: four to each power of two.
  static std::size_t range_bytes(std::size_t bytes);

  struct Message {
    PlannedMessage planned;
    char* entries = nullptr;  ///< in the range,
    char* data = nullptr;     ///< right behind them
    const Registration* registration = nullptr;
    std::vector<std::shared_ptr<const Registration>> sources;  ///< of planned.direct; null where the network needs none
    bool has_ended = false;                                    ///< its plan,
    std::uint64_t last_task = 0;                               ///< and then this was the last one
  };
  /// For a plan, which calls leave() when it ends; both by the number that its tasks tell. Throws Error.
  RelayedSend enter(PlannedMessage planned);
  void leave(std::uint64_t number);
  /// For its task, until that is over.
  const Message& message(std::uint64_t number);

 private:
  struct Range {
    std::shared_ptr<char> memory;
    std::size_t bytes;
    std::shared_ptr<const Registration> registration;
  };
  void drop_old();  // under mutex_

  Device& device_;
  Network& network_;
  RelayedOut& out_;
  std::mutex mutex_;         ///< guards what follows
  std::list<Range> ranges_;  ///< the newest in front
  std::map<std::uint64_t, Message> messages_;
  std::uint64_t last_number_ = 0;
};

}  // namespace mpix
