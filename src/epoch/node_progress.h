// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "offnode/off_node.h"
#include "team/enqueued_epochs.h"
#include "team/neighbourhood.h"

namespace mpix {

/// How far streams have come with what a window has enqueued, as its counters on this node say.
class NodeProgress {
 public:
  NodeProgress(Device& device, Neighbourhood& peers, const OffNode& off_node, const HostWords& words,
               const EnqueuedEpochs& enqueued)
      : device_(device), peers_(peers), off_node_(off_node), words_(words), enqueued_(enqueued) {}

  void launched() { ++launched_; }
  /// All of it, but for what the network still has to do, and for replays to come of graphs.
  bool has_run() const;
  /// With one rank, of any node.
  EpochCounts run(int rank) const;

  /// All that was enqueued here and at peers has run, say the counters. On a GPU a post may be on its way still: it is
  /// a store to a peer, in front of a store to a counter here, and nothing orders the two. The memory that it comes to
  /// must not be another window's by then. It is there at once; where it never comes, as the peer has died or its
  /// window has broken, the memory is nobody's any more.
  void await_posts(bool with_guards, const std::string& window) const noexcept;

 private:
  bool has_all_posts(bool with_guards) const;

  Device& device_;
  Neighbourhood& peers_;
  const OffNode& off_node_;
  const HostWords& words_;
  const EnqueuedEpochs& enqueued_;
  std::uint64_t launched_ = 0;
};

}  // namespace mpix
