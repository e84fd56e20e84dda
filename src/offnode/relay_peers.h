// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "net/operation_budget.h"
#include "offnode/outgoing.h"
#include "team/bootstrap.h"
#include "team/neighbourhood.h"

namespace mpix {

/// The words of one rank for a rank of another node. In pinned memory, as all that the relay and kernels share.
struct RelayWords {
  PairWords mine;                      ///< what kernels take for their words for that rank
  PairWords there;                     ///< and for those in its memory
  alignas(64) std::uint64_t landed;    ///< posts of that rank that have come
  alignas(64) std::uint64_t finished;  ///< epochs to that rank that are over here, and all before them
  Bell bell;                           ///< rung by kernels; nobody sleeps on it
};

/// A rank of another node, for a device whose kernels cannot talk to the network. To them it looks like a rank of this
/// node, whose memory is pinned memory of this process; the relay (offnode/relay.h) brings what they write there to the
/// rank, and its network writes what they read. o: origin, t: target, e: an epoch of the pair o -> t:
///
/// | what               | lies in | written by          | read by           | order |
/// |--------------------|---------|---------------------|-------------------|-------|
/// | there.posted       | t       | t's post            | t's relay         | as `posted` in program.h; the relay acquires, and starts a transfer |
/// | landed             | o       | t's NIC: adds       | o's relay         | a signal |
/// | mine.posted        | o       | o's relay           | o's complete      | release. min(landed, finished + 1): all epochs up to `finished` have left this process for good |
/// | outbox lines       | o       | o's complete        | o's relay and NIC | each half line has its epoch's flag; the relay looks at every one before the NIC may |
/// | outgoing memory    | o       | o's complete        | o's NIC           | before the header, which is a release then; the relay acquires |
/// | inbox lines        | t       | o's NIC             | t's wait, after the header | as below |
/// | staging            | t       | o's NIC             | t's wait, after the header | the transfer's signal, which sets the second half of the header, comes after its writes. For what is staged t acquires; a line has its epoch's flag besides |
///
/// Slot e is written again in e + depth, which needs mine.posted >= e + 1, and the outgoing memory of a plan in e + 1
/// at the earliest, which needs the same: so e is finished, whatever a network may mean by that t has received it. The
/// post of t says that t's slot and staging may be written, as on a node.
///
/// No deadlock: mine.posted follows `landed` as transfers end, and these wait for no program, only for the budget and
/// the network.
struct RelayPeer {
  int rank = -1;
  Connection connection = 0;
  RemoteMemory block;                                 ///< its, and
  std::uint64_t landed_offset = 0, inbox_offset = 0;  ///< what is for me in there
  RemoteMemory staging;
  RelayWords* words = nullptr;
  Ring outbox{};
  std::unique_ptr<OutgoingSource> outgoing;

  std::string lost(const std::string& why) const {
    return "rank " + std::to_string(rank) + " cannot be reached over the network: " + why;
  }
};

/// The relayed ranks of one window, and the memory for them. Collective to construct. Kept alive by what is under way,
/// and by graphs.
///
/// The block of a rank with m such peers, pinned, and exposed to the network:
///   for each peer: RelayWords | for each peer: the ring of slots that it writes (inbox)
/// Outboxes, staging memory and outgoing memory are allocations of their own.
class RelayPeers : public std::enable_shared_from_this<RelayPeers> {
 public:
  /// Fills in what `neighbours` knows of ranks on other nodes. Without a budget none of them can be reached, and
  /// `why_not` says why.
  RelayPeers(const LocalMemory& memory, Bootstrap& bootstrap, Device& device, OperationBudget* budget,
             const std::string& why_not, const Settings& settings, Neighbourhood& neighbours);
  ~RelayPeers();
  RelayPeers(const RelayPeers&) = delete;
  RelayPeers& operator=(const RelayPeers&) = delete;

  /// Some of them can be reached: then there is a budget.
  bool is_connected() const { return !connected_.empty(); }
  OperationBudget& budget() { return *budget_; }
  const std::vector<RelayPeer*>& connected() const { return connected_; }
  const Registration* outbox_registration() const { return outboxes_registered_.get(); }
  Outgoing& outgoing() { return *outgoing_; }
  /// Asks it for a sign of life. Empty, or, with its rank, why it cannot be reached.
  std::string probe(const RelayPeer& peer);
  /// As Neighbourhood::retire().
  void retire(const PairWords& words);
  /// The network reaches the memory no more.
  void withdraw();

 private:
  struct Card;
  struct Offsets;
  class ToPeer;
  Card make_card(const LocalMemory& memory, Device& device, std::uint32_t depth);
  void connect(RelayPeer& peer, std::size_t position, const Card& card, std::size_t my_position_there,
               std::size_t peers_there, std::uint32_t depth);
  void introduce(RelayPeer& peer, std::size_t position, std::uint32_t depth, Peer& neighbour);

  OperationBudget* const budget_;
  std::string why_not_;
  const std::size_t eager_bytes_;
  std::uint32_t slot_lines_ = 0;  ///< of the inboxes
  std::shared_ptr<char> region_, outboxes_, staging_;
  std::unique_ptr<Outgoing> outgoing_;
  std::shared_ptr<const Registration> region_exposed_, staging_exposed_, outboxes_registered_;
  std::vector<RelayPeer> peers_;
  std::vector<RelayPeer*> connected_;
};

}  // namespace mpix
