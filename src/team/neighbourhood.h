// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/node_memory.h"
#include "team/bootstrap.h"
#include "team/each_rank.h"
#include "team/team.h"
#include "team/window_card.h"
#include "wire/relayed.h"

namespace mpix {

/// This rank's part of a window.
struct LocalMemory {
  void* base;
  std::size_t bytes;
  std::size_t displacement_unit;
  /// Info mpix_lazy_post: the program never waits for a peer between a post and its next call on the window.
  bool lazy_post = false;
};

/// Most puts of one epoch to one target whose window peers cannot map: each needs room in the mailbox.
constexpr std::uint32_t max_staged_puts = 5000;
/// And to one that is relayed, whose inbox takes pinned memory.
constexpr std::uint32_t max_relayed_puts = 1000;

/// Lines of a slot for up to `eager_bytes` of payload into a window of so many bytes; `staged_puts`: of an epoch that
/// does not go by mailbox, but needs its descriptors all the same. A multiple of 8.
std::uint32_t slot_lines_for(std::size_t window_bytes, std::uint32_t staged_puts, std::size_t eager_bytes);

/// What the network takes from the origin buffer itself, and leaves in the window.
struct DirectPut {
  const void* source;
  std::size_t bytes;
  std::uint64_t offset;  ///< in the window
};

/// The puts of a plan to a relayed peer, as one message; and those that no kernel touches.
struct PlannedMessage {
  std::vector<MessageEntry> entries;
  std::size_t bytes = 0;          ///< of all data
  std::uint32_t chunk_shift = 0;  ///< 0: the data land behind the entries; else in memory of their own, in chunks
  std::vector<DirectPut> direct;
};

/// Where kernels leave messages to a relayed peer; see offnode/outgoing.h.
class OutgoingSource {
 public:
  virtual ~OutgoingSource() = default;
  struct Taken {
    RelayedSend send{};                ///< for kernels
    std::shared_ptr<const void> keep;  ///< gives it back
  };
  virtual Taken take(PlannedMessage message) = 0;
};

/// What a rank knows of another rank of the window, and shares with it.
struct Peer {
  bool reachable = false;        ///< on this node, and both sides can map each other; or relayed
  RelayedIn* relayed = nullptr;  ///< on another node, and a relay talks to it: what comes from there
  std::string trouble;           ///< why it cannot be reached
  std::size_t window_bytes = 0;
  std::size_t displacement_unit = 1;

  // Addresses are known when Neighbourhood has connected the peer. As its origin: what lies in its memory.
  Ring outbox{};           ///< my mailbox there
  char* direct = nullptr;  ///< its window, or the staging memory that mirrors it; null when it is empty
  bool staged = false;     ///< direct is staging memory
  // Where it is relayed, in place of outbox and direct:
  OutgoingSource* outgoing = nullptr;
  const std::uint64_t* allowed = nullptr;
  std::size_t inbox_bytes = 0;          ///< there
  std::size_t direct_above = SIZE_MAX;  ///< a put of more goes from the origin buffer into the window
  std::size_t eager_bytes = 0;          ///< most that an epoch sends by mailbox, and
  std::size_t packs_above = SIZE_MAX;   ///< what of it goes in packs
  std::uint32_t most_puts = 0;          ///< of an epoch; 0: any number
  Bell* bell = nullptr;

  // As its target: what lies in mine, and the word of the peer that I write.
  Ring inbox{};
  const char* staging = nullptr;  ///< where it leaves what goes staged; null where it writes into the window

  bool is_origin = false, is_target = false;  ///< connected as such

  PairWords* words = nullptr;  ///< mine, for this peer
  PairWords* there = nullptr;  ///< mine, in its memory
};

/// What a window has of its team: the memory that its ranks share on this node (device/node_memory.h), as it is mapped
/// here for those that epochs have named, and what all told each other when it was created. Of ranks of other nodes
/// that no epoch has named it knows the size of their windows.
///
/// A window of a team on one node is foreseen when the last ones were such that they could have been: WindowCards then
/// say all that NodeCards would, as peers map nothing but the team's memory, which they all have; and the least rank
/// chooses a place, before it knows the others' sizes, with room for as much on each as it has itself. So one exchange,
/// agree()'s, takes the place of two. If that shows that it is not so, they go on as in any other window.
class Neighbourhood {
 public:
  /// Collective, with agree(). Throws on all ranks of the node where one of them cannot go along; of a foreseen window,
  /// on this one.
  Neighbourhood(const LocalMemory& memory, std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device,
                const Settings& settings);
  ~Neighbourhood();
  Neighbourhood(const Neighbourhood&) = delete;
  Neighbourhood& operator=(const Neighbourhood&) = delete;

  /// Collective: the last exchange of the window's creation, but for what is seldom needed. All have come so far;
  /// afterwards peers may be written to. `card`: what this rank tells beside its size. Returns all ranks' cards. Throws
  /// on all ranks or on none.
  std::vector<WindowCard> agree(Bootstrap& bootstrap, WindowCard card = {});

  const Team& team() const { return *team_; }
  int size() const { return team_->size(); }
  bool same_node(int rank) const { return local(rank) >= 0; }
  /// Of this node: any thread. Or one that an epoch has named: under the window's lock.
  const Peer& peer(int rank) const { return const_cast<Neighbourhood*>(this)->peer(rank); }
  Peer& peer(int rank) {
    const int number = local(rank);
    return number >= 0 ? peers_[static_cast<std::size_t>(number)] : elsewhere_.at(rank);
  }
  /// Before a rank, of whatever node, is part of an epoch. Throws Error where its memory cannot be mapped, and may be
  /// tried again.
  void connect_origin(int rank);
  void connect_target(int rank);

  // When some rank is connected.
  Bell* bell() const { return &header_.load(std::memory_order_acquire)->bell; }
  GuardMarks* guard_marks() const { return &header_.load(std::memory_order_acquire)->marks; }

  char* window() const { return window_; }
  bool is_staged() const { return staged_; }
  /// Most that comes by mailbox, but for packs, of which nobody knows before an origin sends as much.
  std::size_t likely_bytes() const { return std::min(eager_bytes_, packs_above_); }
  std::size_t packs_above() const { return packs_above_; }
  /// Kernels of this window have guards in front of them, on all ranks of this node (wire/guard.h).
  bool needs_guards() const { return needs_guards_; }
  /// For its kernels that wait; null where they do not, or take no places.
  WaitingRoom* waiting_room() const { return waiting_room_.get(); }
  /// Ranks that run their kernels where this one does, with itself.
  std::uint32_t sharers() const { return sharers_; }
  /// For what may outlive the window: this rank's shared memory.
  std::shared_ptr<const void> control_memory() const { return memory_ ? memory_->own_control() : nullptr; }
  /// What the words of all pairs are at the end of a window whose epochs a graph may hold: what is launched of them
  /// later finds nothing to do.
  static PairWords retired_words();
  void retire();

  /// For the reports of peers. Throws Error.
  void say_farewell(Farewell farewell);
  /// Any thread; of a rank that an epoch has named.
  Farewell farewell_of(int rank) const noexcept;

 private:
  struct NodeCard;
  struct Header {
    Bell bell;
    GuardMarks marks;
  };
  NodeCard make_card(const LocalMemory& memory);
  bool is_foreseeable(const std::vector<WindowCard>& cards) const;
  void foresee(const std::vector<NodeRank>& group, WindowCard& card);
  std::vector<WindowCard> agree_as_foreseen(Bootstrap& bootstrap, WindowCard card);
  void note_group(const std::vector<NodeCard>& cards, std::vector<NodeRank>& group) const;
  void join(const std::vector<NodeCard>& cards, std::vector<NodeRank>& group);
  void join(int rank, const NodeCard& card);
  void name_trouble();
  void note_sizes(const std::vector<WindowCard>& cards);
  void drop_pairs(const std::vector<WindowCard>& cards, Bootstrap& bootstrap);
  void make_ready(Bootstrap& bootstrap);
  bool decide_guards(const std::vector<NodeCard>& cards, const Settings& settings) const;
  static bool share_in_turns(const std::vector<NodeCard>& cards);
  static bool lack_places(const std::vector<NodeCard>& cards);
  void use();
  Peer& named(int rank);
  void map_mailboxes(int rank);
  void fill_words(const PairWords& words);
  int local(int rank) const { return team_->local(rank); }

  const std::shared_ptr<const Team> team_;
  Device& device_;
  char* window_;
  std::size_t eager_bytes_;
  std::size_t packs_above_;
  bool staged_ = false;
  std::uint32_t depth_;
  std::uint32_t slot_lines_ = 0, slot_packs_ = 0;
  bool needs_guards_ = false;
  std::shared_ptr<WaitingRoom> waiting_room_;
  std::uint32_t sharers_ = 1;
  std::unique_ptr<NodeMemory> memory_;  ///< null: this rank shares with nobody
  const int me_;
  const std::size_t window_bytes_;
  const std::size_t displacement_unit_;
  std::unique_ptr<NodeCard> own_card_;  ///< while a foreseen window is made
  Unreached unreached_;
  std::vector<Peer> peers_;                       ///< of this node, by number there
  std::map<int, Peer> elsewhere_;                 ///< by rank, those that epochs have named
  std::optional<EachRank<std::uint64_t>> bytes_;  ///< of all windows, where there are several nodes, and
  std::optional<EachRank<std::uint32_t>> units_;
  Header own_header_{};  ///< while there is no other
  std::atomic<Header*> header_{&own_header_};
  bool in_use_ = false;
};

}  // namespace mpix
