// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <vector>

#include "base/stats.h"
#include "net/remote_message.h"
#include "offnode/remote_peers.h"
#include "team/put.h"

namespace mpix {

/// What an access epoch does for one target of another node. Part of a plan; immutable.
struct RemoteSend {
  RemotePeer* peer = nullptr;
  std::vector<GatheredPut> gathered;
  std::size_t message_bytes = 0;  ///< 0: no message; without marks
  bool marked = false;            ///< the message is a marked one, and all there is: also where there are no puts
  std::vector<NetworkWrite>
      direct;  ///< straight from the origin buffers into the window (RemotePeers::window_of), after the post
  std::vector<std::shared_ptr<const Registration>> sources;

  bool awaits_post() const { return !direct.empty(); }
  bool has_message() const { return marked || message_bytes > 0; }
  std::size_t words() const { return MarkedMessage::words_for(message_bytes); }  ///< of a marked message
  std::size_t writes() const { return direct.size() + (has_message() ? 1 : 0); }
  /// Triggered operations: the writes, and the signal where one is needed.
  std::size_t operations() const { return writes() + (marked ? 0 : 1); }

  /// Small puts are gathered as long as they fit, in the order of the calls; the others go direct.
  static RemoteSend build(RemotePeer& peer, RemotePeers& peers, const std::vector<const Put*>& puts,
                          std::uint64_t displacement_unit, Stats& effect);
};

/// What a call asks of the budget.
Grant grant_for(const std::vector<RemoteSend>& sends);

}  // namespace mpix
