// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <algorithm>

#include "epoch/window.h"

namespace mpix {

/// How far streams have come with a rank.
EpochCounts Window::run(int rank) {
  if (const RemotePeer* remote = remote_->find(rank))
    return {load_acquire(&remote->sent), load_acquire(&remote->opened), load_acquire(&remote->closed)};
  const Peer& peer = peers_.peer(rank);
  const auto read = [&](const std::uint64_t& word) {
    return peer.relayed ? load_acquire(&word) : device_.read_word(&word);  // pinned memory
  };
  const PairCounters& own = peer.words->own;
  EpochCounts run{read(own.sent[0]), read(own.opened.epochs), read(own.closed[0])};
  for (std::uint32_t part = 1; part < device_.parts_in_use(); ++part) {
    run.sent = std::min(run.sent, read(own.sent[part]));
    run.closed = std::min(run.closed, read(own.closed[part]));
  }
  return run;
}

/// Two ranks that each wait before they complete, in one stream, wait for each other for ever. Seen from here: the
/// stream has something to wait for and something to complete, for one rank, and has not completed more epochs than it
/// has waited for. A program that only enqueues ahead has: it completes, waits, completes, waits. Of a ping-pong with a
/// peer that is late the side that answers looks the same, so this asks, and does not say.
std::string Window::complete_behind_wait() {
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);  // a call may wait for the stream that asks
  if (!hold || was_captured_ || last_wait_ != last_complete_) return "";
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const EpochCounts& enqueued = enqueued_[static_cast<std::size_t>(rank)];
    if (enqueued.sent == 0 || enqueued.closed == 0) continue;
    const EpochCounts run = this->run(rank);
    if (run.closed < enqueued.closed && run.sent < enqueued.sent && run.sent <= run.closed)
      return "a complete for rank " + std::to_string(rank) +
             " is behind this wait in the same stream: do both ranks wait before they complete?";
  }
  return "";
}

}  // namespace mpix
