// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "net/network.h"
#include "net/operation_budget.h"

namespace mpix {

/// Writes to one peer, and then a signal where there is one, queued with the network as far as there is room: where
/// that is less than all of it, in stages. A stage begins when the one before is over, and the signal comes with the
/// last write or after it: it hangs on writes of its own stage, and those before are at the peer by then.
class StagedTransfer {
 public:
  /// Queues the next stage and takes its part of `room`; false when there is none. `write_of(i)` for i < `writes`,
  /// `signal` may be null; both the same for all stages. Throws Error as Network::queue does, and then has changed
  /// nothing.
  template <class WriteOf>
  bool queue(Network& network, Connection to, std::size_t writes, WriteOf write_of, const NetworkSignal* signal,
             Grant& room) {
    if (room.operations == 0 || room.transfers == 0) return false;
    const std::size_t count = std::min(writes - queued_, room.operations);
    const bool last = queued_ + count == writes && (!signal || room.operations > count);
    const bool signals = last && signal;
    thread_local std::vector<NetworkWrite> stage;
    stage.clear();
    for (std::size_t i = 0; i < count; ++i) stage.push_back(write_of(queued_ + i));
    at_hand_ = network.queue(to, stage.data(), count, signals ? signal : nullptr);
    held_ = {count + (signals ? 1 : 0), 1};
    queued_ += count;
    all_queued_ = last;
    room.take(held_);
    return true;
  }

  bool has_stage() const { return at_hand_ != nullptr; }
  /// There will be no other stage.
  bool all_queued() const { return all_queued_; }
  /// What the stage at hand holds.
  const Grant& held() const { return held_; }

  // Of the stage at hand; there is one.
  void start() { at_hand_->start(); }
  bool finished() const { return at_hand_->finished(); }
  bool delivered() const { return at_hand_->delivered(); }
  std::string failure() const { return at_hand_->failure(); }
  bool cancel() { return at_hand_->cancel(); }
  /// It is over, or cancelled: its part goes back to `room`.
  void end_stage(Grant& room) {
    at_hand_ = nullptr;
    room.add(held_);
    held_ = {};
  }
  /// What there was to do is done in another way.
  void leave_out() { all_queued_ = true; }

 private:
  std::size_t queued_ = 0;  ///< writes
  bool all_queued_ = false;
  std::unique_ptr<Transfer> at_hand_;
  Grant held_{};
};

}  // namespace mpix
