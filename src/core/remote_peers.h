// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bootstrap.h"
#include "core/interconnect.h"
#include "core/neighbourhood.h"
#include "core/settings.h"
#include "kernels/memory.h"

namespace mpix {

/// A rank of another node, and what this rank shares with it. o: origin, t: target, e: an epoch of the pair o → t.
///
/// | word          | lies in | written by                              | polled by             | order |
/// |---------------|---------|-----------------------------------------|-----------------------|-------|
/// | posted        | o       | t's NIC: post adds 1                     | o's complete          | the doorbell is rung in t's stream order, so t's uses of the window come before; o acquires, and its doorbell follows |
/// | arrived[slot] | t       | o's NIC: sets 2 e, or 2 e + 1 where a message is in the slot | t's wait | triggered by the completion of all writes of the epoch, which is their delivery; t acquires |
/// | message slot  | t       | o's NIC: one write                       | t's wait, after arrived | as above; written again in e + depth, which needs posted ≥ e + 1, and t posts that after its wait of e |
/// | staging slot  | o       | o's complete                             | o's NIC               | the doorbell comes after; written again in e + depth: t has read the message of e, so it has left here |
/// | counters      | own     | own stream                               | own stream, own host  | stream order |
///
/// posted counts, for two posts under way may land in either order. A slot has one epoch under way, so its word is set.
/// There is no acknowledgement: the post of epoch e − depth + 1 is the credit for epoch e, for it says that t has
/// waited for e − depth. MPI lets complete(e) wait for post(e), which is later still.
struct RemotePeer {
  int rank = -1;
  bool reachable = false;
  Connection connection = 0;
  RemoteMemory control;  ///< its block, and
  std::uint64_t posted_offset = 0, arrived_offset = 0, inbox_offset = 0;  ///< what is for me in there
  RemoteMemory window;
  std::size_t slot_bytes = 0;  ///< of my slots there

  // Mine, for it.
  std::uint64_t* posted = nullptr;
  std::uint64_t* arrived = nullptr;
  char* inbox = nullptr;
  char* staging = nullptr;
  std::uint64_t sent = 0, opened = 0, closed = 0;

  std::string lost(const std::string& why) const {
    return "rank " + std::to_string(rank) + " cannot be reached over the network: " + why;
  }
};

/// One window's ranks on other nodes. Collective to construct. Kept alive by the epochs that are under way.
///
/// The block of a rank with m such peers, registered with the network, each part at a multiple of 64 bytes:
///   for each peer: posted, arrived[depth] | for each peer: depth slots that it writes
class RemotePeers {
 public:
  /// Without an interconnect none of them can be reached, and `why_not` says why. Relayed: they are others' affair.
  RemotePeers(const LocalMemory& memory, Bootstrap& bootstrap, Device& device, Interconnect* interconnect,
              std::string why_not, const Settings& settings, bool relayed = false);
  ~RemotePeers();
  RemotePeers(const RemotePeers&) = delete;
  RemotePeers& operator=(const RemotePeers&) = delete;

  /// Null for ranks of this node.
  RemotePeer* find(int rank) { return index_[static_cast<std::size_t>(rank)] < 0 ? nullptr : &peers_[static_cast<std::size_t>(index_[static_cast<std::size_t>(rank)])]; }
  /// There are ranks of other nodes, and some of them can be reached.
  bool is_connected() const { return connected_; }
  const std::string& why_not() const { return why_not_; }
  Interconnect& interconnect() { return *interconnect_; }
  char* window() const { return window_; }
  std::uint32_t depth() const { return depth_; }
  std::size_t eager_bytes() const { return eager_bytes_; }
  std::size_t slot_bytes() const { return slot_bytes_; }  ///< of the slots here
  /// Asks it for a sign of life. Empty, or, with its rank, why it cannot be reached.
  std::string probe(const RemotePeer& peer);
  /// The window ends, and this may not: what arrives from now on is refused, for its memory is the program's again.
  void hide_window() { window_exposed_ = nullptr; }
  const Registration* staging_registration() const { return staging_registered_.get(); }

  std::size_t slot(std::uint64_t epoch) const { return static_cast<std::size_t>(epoch & (depth_ - 1)); }
  bool has_credit(const RemotePeer& peer, std::uint64_t epoch) const {
    return epoch <= depth_ || load_acquire(peer.posted) + depth_ > epoch;
  }
  static bool is_exposed(const RemotePeer& peer, std::uint64_t epoch) { return load_acquire(peer.posted) >= epoch; }

 private:
  struct Card;
  struct Layout;
  Card make_card(const LocalMemory& memory, const Settings& settings);
  void connect(RemotePeer& peer, std::size_t position, const Card& card, std::size_t my_position_there,
               std::size_t peers_there);

  Device& device_;
  Interconnect* const interconnect_;
  std::string why_not_;
  bool connected_ = false;
  char* const window_;
  const std::uint32_t depth_;
  const std::size_t eager_bytes_;
  std::size_t slot_bytes_ = 0;
  Allocation block_{}, staging_{};
  std::shared_ptr<const Registration> block_exposed_, window_exposed_, staging_registered_;
  std::vector<RemotePeer> peers_;
  std::vector<int> index_;  ///< by rank; -1: of this node
};

}  // namespace mpix
