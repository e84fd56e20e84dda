// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/settings.h"
#include "mpix_device/memory.h"
#include "net/late_posts.h"
#include "net/operation_budget.h"
#include "net/remote_message.h"
#include "offnode/doorsteps.h"
#include "team/neighbourhood.h"
#include "team/team.h"
#include "team/window_card.h"

namespace mpix {

class RemoteOperations;

/// A post that its stream has come to, and that waits for a message to the same peer to ride in.
struct HeldPost {
  std::shared_ptr<RemoteOperations> operations;  ///< null: none
  std::size_t item = 0;
};

/// A rank of another node, and what this rank shares with it. o: origin, t: target, e: an epoch of the pair o → t.
///
/// | word          | lies in | written by                              | polled by             | order |
/// |---------------|---------|-----------------------------------------|-----------------------|-------|
/// | posts         | o       | t's NIC: post adds (offnode/doorsteps.h) | o's complete          | the doorbell is rung in t's stream order, so t's uses of the window come before; o acquires, and its doorbell follows |
/// | marked slot   | t       | o's NIC: one write, or one message into the slot's place (Inlet); t's wait wipes | t's wait; the front also t's complete | each word carries its mark (MarkedMessage); t acquires each. Wiped before t posts e + 1 |
/// | arrived[slot] | t       | o's NIC: sets 2 e, or 2 e + 1 where a message is in the slot | t's wait | triggered by the completion of all writes of the epoch, which is their delivery; t acquires |
/// | message slot  | t       | o's NIC: one write                       | t's wait, after arrived | as above; its first word has no mark; wiped like a marked one |
/// | gather buffer | o       | o's complete                             | o's NIC               | the doorbell comes after; written again in e + depth: t has read the message of e, so it has left here |
/// | counters      | own     | own stream                               | own stream, own host  | stream order |
///
/// An epoch in which nothing goes direct is a marked message, where the network allows it, and all of it one operation.
/// A slot is written again in e + depth, which needs posts ≥ e + 1, and t posts that after its wait of e.
/// The places of an inlet are open before o knows of it; a marked message takes up the opening, and t's wait opens the
/// place again before it counts the epoch as closed. So one is open, and no more than one, whenever o has credit.
/// Epochs with a signal are written, and leave it open. posts counts, for two posts under way may land in either order.
/// A slot has one epoch under way, so its word is set. There is no acknowledgement: the post of epoch e − depth + 1 is
/// the credit for epoch e, for it says that t has waited for e − depth. MPI lets complete(e) wait for post(e), which is
/// later still.
///
/// **Posts that ride.** As a rule t's post is followed by its own complete towards o. So t's stream holds the post (a
/// HeldPost) for that message to tell it: the front of a marked message has the number of posts that rode, so far, and
/// o's posts are those and what `posts` says. The first post of a pair tells more, and does not ride. As nobody knows
/// whether the message comes, no post stays held
///   - when a complete or a wait of the window has looked around for the first time, in any stream: what did not ride
///     goes then as an operation of its own, and so does the next post to the same peer;
///   - for longer than a moment (LatePosts): a thread sends it, whatever the streams do meanwhile.
/// For the first there is no need of anything: the operation's part of the budget was reserved when the post was
/// called. Where the network has no room for it now it is tried again, as often as anybody looks, and may ride
/// meanwhile. A message takes a post only when it is being started, and from then on it waits for nobody. And o looks
/// for posts in the fronts of all its slots whenever its complete misses one, so it does not depend on its wait having
/// come. So a post that rides is late by a moment at most, and held back by nobody. Where a post could not ride the
/// next few do not try (rides_to_skip).
struct RemotePeer {
  int rank = -1;
  Connection connection = 0;
  RemotePeer* next = nullptr;  ///< that an epoch has named before

  // As its target: for what comes from it. Null until a post names it.
  std::uint64_t* arrived = nullptr;
  char* inbox = nullptr;
  const FirstPost* told = nullptr;  ///< what it is told of that,
  const Registration* told_registered = nullptr;
  Inlet* inlet = nullptr;  ///< null: messages are written

  // As its origin. Null until a start names it.
  char* gather_buffer = nullptr;
  const Registration* gather_registered = nullptr;
  std::size_t slot_bytes = 0;  ///< of my slots there

  std::uint64_t sent = 0, opened = 0, closed = 0;
  std::uint32_t posts_ridden = 0;  ///< its posts that came in messages; modulo 2^32
  std::uint32_t rides_given = 0;   ///< my posts in messages to it; guarded by RemotePeers, as are
  std::uint32_t rides_to_skip = 0;
  HeldPost held;
  bool held_for_long = false;
  std::vector<HeldPost> refused;  ///< posts that were held before, and that the network had no room for

  std::string name() const { return "rank " + std::to_string(rank); }
};

/// One window's ranks on other nodes: what all of them have are doorsteps; those that an epoch has named, slots. Kept
/// alive by the epochs that are under way.
///
/// A rank's half of a pair, as the target, exposed to the network: arrived[depth] | depth slots, at multiples of 64
/// bytes. As the origin: depth slots for what is gathered. The halves for the ranks that one call names are one
/// allocation, with what these are told behind them.
class RemotePeers final : public HeldPosts, public std::enable_shared_from_this<RemotePeers> {
 public:
  /// Without a budget none of them can be reached, and `why_not` says why. Relayed: RelayPeers has them.
  RemotePeers(const LocalMemory& memory, const Team& team, Device& device, OperationBudget* budget,
              const std::string& why_not, const Settings& settings, bool relayed = false);
  ~RemotePeers();
  RemotePeers(const RemotePeers&) = delete;
  RemotePeers& operator=(const RemotePeers&) = delete;

  /// What the window's creation takes: say what is here, and, when all have, connect.
  void offer(WindowCard& card);
  void connect(const std::vector<WindowCard>& cards) { doorsteps_.connect(team_, cards); }

  /// There are ranks of other nodes, and some of them can be reached.
  bool is_connected() const { return doorsteps_.reaches_some(); }
  bool reaches(int rank) const { return doorsteps_.reaches(rank); }
  const Doorsteps& doorsteps() const { return doorsteps_; }

  // Under the window's lock.
  /// Before the first epoch that these ranks, of whatever node, are origins or targets of. Throws Error where there is
  /// no memory, and may be tried again.
  void name_origins(const std::vector<int>& origins);
  void name_targets(const std::vector<int>& targets, const Neighbourhood& neighbours);
  /// Null for ranks of this node, and for those that no epoch has named.
  RemotePeer* find(int rank) {
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : &found->second;
  }
  /// In the order of ranks.
  const std::map<int, RemotePeer>& named() const { return peers_; }

  OperationBudget& budget() { return *budget_; }
  char* window() const { return window_; }
  std::size_t window_bytes() const { return window_bytes_; }
  /// Whether a put goes in an epoch's message that holds so many bytes of others, where there is room.
  bool gathers(std::size_t bytes, std::size_t others) const {
    constexpr std::size_t small = 1024;
    return others + bytes <= eager_bytes_ || (gathers_small_ && bytes <= small);
  }
  std::size_t slot_bytes() const { return slot_bytes_; }  ///< of the slots here
  /// Asks it for a sign of life. Empty, or, with its rank, why it cannot be reached.
  std::string probe(const RemotePeer& peer) const {
    return doorsteps_.probe(budget_->network(), peer.connection, peer.rank);
  }
  /// The window ends, and this may not: what arrives from now on is refused, for its memory is the program's again. Of
  /// a window that broke posts may be held still; they refer to this, and would keep it for ever.
  void end_window() noexcept;
  /// After a marked message was read: there may come another. False: ask again.
  bool open(const RemotePeer& peer, std::size_t slot) { return !peer.inlet || peer.inlet->open(slot); }
  /// Epochs without direct data are marked messages.
  bool marks_messages() const { return marks_; }

  // What goes there; only once it has told where.
  bool has_told(const RemotePeer& peer) const { return doorsteps_.has_told(peer.rank); }
  NetworkWrite message_to(const RemotePeer& peer, std::size_t slot, std::size_t bytes, bool as_message) const;
  NetworkSignal arrival_at(const RemotePeer& peer, std::size_t slot, std::uint64_t value) const;
  const RemoteMemory& window_of(const RemotePeer& peer) const { return doorsteps_.first(peer.rank).window; }
  // Posts.
  static bool tells(std::uint64_t epoch) { return epoch == 1; }
  NetworkWrite tell(const RemotePeer& peer) const {
    return doorsteps_.tell(peer.rank, *peer.told, peer.told_registered);
  }
  NetworkSignal post_to(const RemotePeer& peer, std::uint64_t epoch) const {
    return tells(epoch) ? doorsteps_.first_posts(peer.rank, 1, peer.inlet ? peer.inlet->name() : 0)
                        : doorsteps_.further_posts(peer.rank, 1);
  }

  std::size_t slot(std::uint64_t epoch) const { return static_cast<std::size_t>(epoch & (depth_ - 1)); }
  /// For the first epoch as for all: by then it has told.
  bool has_credit(RemotePeer& peer, std::uint64_t epoch) const {
    return has_told(peer) && (epoch <= depth_ || has_posted(peer, epoch + 1 - depth_));
  }
  bool is_exposed(RemotePeer& peer, std::uint64_t epoch) const { return has_posted(peer, epoch); }
  /// Of its posts, the one that an epoch without direct data waits for.
  std::uint64_t awaited_post(std::uint64_t epoch) const { return epoch <= depth_ ? 1 : epoch + 1 - depth_; }
  /// What the front of a marked message says of its sender's posts.
  static void note_ridden(RemotePeer& peer, std::uint32_t posts);

  // Posts that ride.
  /// For the next post to this peer.
  bool may_ride(RemotePeer& peer);
  void hold(RemotePeer& peer, HeldPost post);
  /// A message to this peer is being started: the number for its front.
  std::uint32_t give_ride(RemotePeer& peer);
  void send_held(RemotePeer& peer);
  void send_all_held();
  /// Sends those that were held when this was last called.
  Late send_late() override;
  std::uint64_t rides() const { return __atomic_load_n(&rides_, __ATOMIC_RELAXED); }

 private:
  /// What was allocated for the ranks that one call named.
  struct Halves {
    std::shared_ptr<char> memory;
    std::shared_ptr<const Registration> exposed, registered;  ///< these end before the memory
    std::vector<std::unique_ptr<Inlet>> inlets;               ///< by pair; their places are the slots
  };
  std::size_t inbox_offset() const { return (8 * std::size_t{depth_} + 63) / 64 * 64; }
  std::vector<RemotePeer*> of_other_nodes(const std::vector<int>& ranks, char* RemotePeer::*needs);
  RemotePeer& peer(int rank);
  bool has_posted(RemotePeer& peer, std::uint64_t epoch) const;
  HeldPost take_held(RemotePeer& peer);
  void send(RemotePeer& peer, HeldPost post);
  void send_refused(RemotePeer& peer);
  template <class Visit>
  void for_all(Visit visit) {
    for (RemotePeer* peer = __atomic_load_n(&newest_, __ATOMIC_ACQUIRE); peer; peer = peer->next) visit(*peer);
  }

  Device& device_;
  const Team& team_;  ///< may end before this: only while the window is there
  OperationBudget* const budget_;
  char* const window_;
  const std::size_t window_bytes_;
  const std::uint32_t depth_;
  const std::size_t eager_bytes_;
  std::size_t slot_bytes_ = 0;
  bool marks_ = false;
  bool gathers_small_ = false;  ///< the network has operations to save, and no setting says how much goes in messages
  std::mutex held_mutex_;       ///< guards what peers say it does, and comes after all other locks
  std::atomic<std::size_t> held_count_{0};
  std::uint64_t rides_ = 0;
  std::shared_ptr<const Registration> window_exposed_;
  std::list<Halves> halves_;
  std::map<int, RemotePeer> peers_;
  RemotePeer* newest_ = nullptr;  ///< of all; other threads go from one to the next
  Doorsteps doorsteps_;
};

}  // namespace mpix
