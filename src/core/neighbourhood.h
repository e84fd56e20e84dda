// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bootstrap.h"
#include "core/settings.h"
#include "gpu/device.h"

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
/// And to one that is relayed, whose mailbox takes pinned memory at both ends.
constexpr std::uint32_t max_relayed_puts = 1000;

/// Lines of a slot for up to `eager_bytes` of payload into a window of so many bytes; `staged_puts`: of an epoch that
/// does not go by mailbox, but needs its descriptors all the same.
std::uint32_t slot_lines_for(std::size_t window_bytes, std::uint32_t staged_puts, std::size_t eager_bytes);

/// Where kernels leave the large puts to a relayed peer; see core/outgoing.h.
class OutgoingLane {
 public:
  virtual ~OutgoingLane() = default;
  struct Block {
    char* base = nullptr;
    std::uint64_t place = 0;
    std::shared_ptr<const void> keep;  ///< gives it back
  };
  virtual Block take(std::size_t bytes) = 0;
};

/// Whether ranks of other nodes are reached by a relay (core/relay.h): the device's streams cannot serve them.
bool needs_relay(const Device& device, const Settings& settings);

/// What a rank knows of another rank of the window, and shares with it.
struct Peer {
  bool reachable = false;  ///< on this node, and both sides have mapped each other; or relayed
  bool relayed = false;    ///< on another node: what seems to lie there is memory here (core/relay_peers.h)
  std::string trouble;     ///< why it cannot be reached
  std::size_t window_bytes = 0;
  std::size_t displacement_unit = 1;

  // As origin: what lies in the peer's memory.
  Ring outbox{};            ///< my mailbox there
  char* direct = nullptr;   ///< its window, or the staging memory that mirrors it; null when it is empty
  bool staged = false;      ///< direct is staging memory
  OutgoingLane* outgoing = nullptr;  ///< in place of direct, where it is relayed
  std::size_t eager_bytes = 0;    ///< most that an epoch sends by mailbox
  std::uint32_t most_puts = 0;    ///< of an epoch; 0: any number
  Bell* bell = nullptr;

  // As target: what lies in mine, and the word of the peer that I write.
  Ring inbox{};
  const char* staging = nullptr;  ///< where it leaves what goes staged; null where it writes into the window

  PairWords* words = nullptr;  ///< mine, for this peer
  PairWords* there = nullptr;  ///< mine, in its memory
};

/// The shared memory of one window: this rank's control memory (bell, words, mailboxes) and, where peers
/// cannot map the window, its staging memory; and the mappings of the peers'. Collective to construct.
///
/// Control memory of a rank, for a window of n ranks, each part at a multiple of 64 bytes:
///   Bell | GuardMarks | PairWords[n] | mailbox of rank 0 | … | mailbox of rank n-1
/// A mailbox is depth × slot_lines lines. Memory of ranks on other nodes is never touched (on the host
/// never even backed).
class Neighbourhood {
 public:
  Neighbourhood(const LocalMemory& memory, Bootstrap& bootstrap, Device& device, const Settings& settings);
  ~Neighbourhood();
  Neighbourhood(const Neighbourhood&) = delete;
  Neighbourhood& operator=(const Neighbourhood&) = delete;

  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Bell* bell() const { return bell_; }
  char* window() const { return window_; }
  const char* staging() const { return staging_.base; }
  std::size_t eager_bytes() const { return eager_bytes_; }
  GuardMarks* guard_marks() const { return reinterpret_cast<GuardMarks*>(control_.get() + sizeof(Bell)); }
  /// Kernels of this window have guards in front of them, on all ranks of this node (kernels/guard.h).
  bool needs_guards() const { return needs_guards_; }
  /// Ranks that run their kernels where this one does, with itself.
  std::uint32_t sharers() const { return sharers_; }
  /// For what may outlive the window: this rank's shared memory.
  std::shared_ptr<const void> control_memory() const { return control_; }
  /// What the words of all pairs are at the end of a window whose epochs a graph may hold: what is launched of them later
  /// finds nothing to do.
  static PairWords retired_words();
  void retire();

 private:
  struct Card;
  Card make_card(const LocalMemory& memory, int size, const Settings& settings);
  bool decide_guards(const std::vector<Card>& cards, const Bootstrap& bootstrap) const;
  void fill_words(const PairWords& words, int size);
  void connect(int rank, const Card& card, const Card& mine, int my_rank, int size);
  void close() noexcept;

  Device& device_;
  char* window_;
  std::size_t eager_bytes_;
  std::shared_ptr<char> control_;
  Allocation staging_{};
  Bell* bell_ = nullptr;
  bool needs_guards_ = false;
  std::uint32_t sharers_ = 1;
  std::vector<Peer> peers_;
  std::vector<char*> imports_;
};

}  // namespace mpix
