// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "net/operation_budget.h"
#include "offnode/doorsteps.h"
#include "offnode/landing.h"
#include "offnode/outgoing.h"
#include "team/neighbourhood.h"
#include "team/team.h"
#include "team/window_card.h"
#include "wire/relayed.h"

namespace mpix {

/// A rank's half of a pair, in pinned memory: what it shares with its own kernels and with the network. Inboxes lie
/// behind it. Beside the words of wire/relayed.h:
///
/// | word    | lies in | written by    | read by                      | order |
/// |---------|---------|---------------|------------------------------|-------|
/// | posts   | o       | t's NIC: adds | o's relay                    | offnode/doorsteps.h |
/// | asked   | t       | o's NIC: adds | t's relay                    | a signal, for an epoch whose message is packed at o, and which t has posted |
/// | asker   | t       | o's NIC       | t's relay, after `asked`     | a write of each transfer whose signal is `asked`: always the same |
/// | landing | o       | t's NIC       | o's relay, after its `bytes` | `bytes` is the signal of the transfer that writes the rest; t answers an ask when this transfer is over for the one before |
///
/// Data may wait for landing memory: what o asks for t's relay gives, of its own accord. It looks by then, for t has
/// posted the epoch, and as long as that lasts, for t's wait is still to come. An ask holds nothing of the budget while
/// it waits for the answer, and each of the two takes an operation at a time if need be.
struct RelayWords {
  RelayedOut out;
  PairWords there;                   ///< `posted`: what kernels take for their words in that rank's memory
  alignas(64) std::uint64_t asked;   ///< bytes of landing memory that rank wants here
  RemoteMemory asker;                ///< its half of the pair, for the answer
  alignas(64) LandingPlace landing;  ///< mine, there
  Bell bell;                         ///< rung by kernels; nobody sleeps on it
  RelayedIn in;
};

/// A rank of another node, for a device whose kernels cannot talk to the network.
struct RelayPeer {
  int rank = -1;
  Connection connection = 0;
  const FirstPost* told = nullptr;  ///< what it is told of this rank's half of the pair
  RelayWords* words = nullptr;
  std::size_t inbox_bytes = 0;                ///< of one of mine there
  const RelayedCounters* counters = nullptr;  ///< in device memory
  std::unique_ptr<Outgoing> outgoing;
  std::unique_ptr<OutgoingSource> to_outgoing;  ///< for plans
  Landing landing;                              ///< of what it puts here
  LandingPlace* answer = nullptr;               ///< in memory that is registered: what it is told of that
  const Registration* registered = nullptr;     ///< of the answer, and what it is told

  std::string name() const { return "rank " + std::to_string(rank); }
};

/// The relayed ranks of one window: what all of them have are doorsteps; those that an epoch has named, memory. Kept
/// alive by what is under way, and by graphs.
///
/// A rank's half of a pair, exposed to the network: RelayWords | inboxes. What the other is told is an allocation of
/// its own; so are the outgoing and the landing memory. The halves for the ranks that one call names are one
/// allocation.
class RelayPeers : public std::enable_shared_from_this<RelayPeers> {
 public:
  /// Without a budget none of them can be reached, and `why_not` says why.
  RelayPeers(const Team& team, Device& device, OperationBudget* budget, const std::string& why_not,
             const Settings& settings);
  ~RelayPeers();
  RelayPeers(const RelayPeers&) = delete;
  RelayPeers& operator=(const RelayPeers&) = delete;

  /// What the window's creation takes: say what is here, and, when all have, connect.
  void offer(const LocalMemory& memory, WindowCard& card);
  void connect(const std::vector<WindowCard>& cards);

  /// Some of them can be reached: then there is a budget.
  bool is_connected() const { return doorsteps_.reaches_some(); }
  bool reaches(int rank) const { return doorsteps_.reaches(rank); }
  OperationBudget& budget() { return *budget_; }
  /// Before the first epoch with these ranks, of whatever node: fills in what `neighbours` knows of them. Throws Error
  /// where there is no memory, and may be tried again.
  void name(const std::vector<int>& ranks, Neighbourhood& neighbours);
  std::map<int, RelayPeer>& named() { return peers_; }

  const Doorsteps& doorsteps() const { return doorsteps_; }
  /// Its half of the pair; once it has told.
  const RemoteMemory& block_of(const RelayPeer& peer) const { return doorsteps_.first(peer.rank).block; }
  /// Likewise, if it takes_direct.
  const RemoteMemory& window_of(const RelayPeer& peer) const { return doorsteps_.first(peer.rank).window; }
  /// The inbox of an epoch, in the block.
  static std::uint64_t inbox_offset(const RelayPeer& peer, std::uint64_t epoch) {
    return sizeof(RelayWords) + epoch % inboxes * peer.inbox_bytes;
  }
  /// How far this rank's kernels have come with it. Calls the device.
  PairCounters counters_of(const RelayPeer& peer) const;

  /// As much as an origin may put in most epochs, where there is memory.
  Landing new_landing();
  /// What its origin asks for. Throws Error.
  void grow_landing(RelayPeer& peer, std::size_t bytes) { peer.landing.grow(bytes, device_, budget_->network()); }
  /// Asks it for a sign of life. Empty, or, with its rank, why it cannot be reached.
  std::string probe(const RelayPeer& peer) const {
    return doorsteps_.probe(budget_->network(), peer.connection, peer.rank);
  }
  /// As Neighbourhood::retire(). Throws Error.
  void retire(const PairWords& words);
  /// The network reaches the memory no more.
  void withdraw();

  /// Before the calling thread, which is the library's, lets the network read or write memory of the device.
  void settle_thread() {
    if (direct_above_ != SIZE_MAX) device_.settle_thread();
  }

 private:
  /// What was allocated for the ranks that one call named.
  struct Halves {
    std::shared_ptr<char> memory, told;
    std::shared_ptr<const void> counters;
    std::shared_ptr<const Registration> exposed, registered;  ///< these end before the memory
  };
  class ToPeer;
  struct Told;
  Halves new_halves(std::size_t pairs);
  void introduce(RelayPeer& peer, Peer& neighbour);

  Device& device_;
  const Team& team_;  ///< may end before this: only while the window is there
  OperationBudget* const budget_;
  const std::size_t eager_bytes_;
  const std::size_t direct_above_;  ///< SIZE_MAX: nothing goes direct
  char* window_ = nullptr;
  std::size_t window_bytes_ = 0;
  bool takes_direct_ = false;                           ///< this rank's window
  std::vector<bool> all_take_direct_;                   ///< by rank; empty: none does
  std::shared_ptr<const Registration> window_exposed_;  ///< null: not yet, or it does not take_direct_
  std::size_t half_bytes_ = 0;
  std::list<Halves> halves_;
  std::map<int, RelayPeer> peers_;
  Doorsteps doorsteps_;
};

}  // namespace mpix
