// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "wire/farewell.h"

namespace mpix {

/// A rank of the node, as all of its ranks know it. `local` is its number among them.
struct NodeRank {
  int local = 0;
  std::size_t mailbox_bytes = 0;  ///< of each mailbox that it has
  std::size_t window_bytes = 0;
  bool staged = false;  ///< peers cannot map the window, and leave what they put in staging memory of its size
};

/// What a rank tells the others of its memory.
struct NodeOffer {
  ExportedMemory control;
  std::uint64_t control_offset;  ///< in that allocation
  ExportedMemory
      window;  ///< the allocation around the window; where it is staged the device may have staging memory here
  std::uint64_t window_offset;  ///< of the window in that allocation
  /// Which memory of the team all of a group share (0: none yet), and, of its least rank, whether it is new to them.
  std::uint64_t id;
  bool is_new;
};

/// What the windows of one team share on this node; see Device::new_team_memory(). It may outlive the device. One
/// window is made at a time.
class TeamMemory {
 public:
  virtual ~TeamMemory() = default;
  /// How many of the last windows, each behind the other, could have been foreseen (Neighbourhood); it need not count
  /// beyond what that asks for. The same on all ranks.
  int foreseeable_in_a_row = 0;
};

/// Where a window lies in memory that several windows share.
struct NodeExtent {
  std::uint64_t offset;
  std::uint32_t entry;
};

/// The memory that the ranks of a node share for one window, as one rank sees it: each rank has a header, a mailbox for
/// each rank, and a window. The ranks make it together, in this order: all offer; all join; the least rank of each
/// group chooses a place; all open. Nobody may touch it before all have joined, and some part of it may be mapped only
/// when it is asked for. A group may join again, with what is known by then: a place that was chosen before stays, and
/// must be large enough.
///
/// Header: Bell | GuardMarks | PairWords by number on the node.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;

  static std::size_t words_offset(int local) {
    return sizeof(Bell) + sizeof(GuardMarks) + static_cast<std::size_t>(local) * sizeof(PairWords);
  }
  static std::size_t header_bytes(int locals) { return words_offset(locals); }

  virtual NodeOffer offer() = 0;
  /// `group`: the ranks that share, this one and the least among them; `offer`: the least one's. Throws Error where
  /// this rank can share with nobody.
  virtual void join(const std::vector<NodeRank>& group, const NodeOffer& offer) = 0;
  /// Throws Error where that rank cannot be reached.
  virtual void join(const NodeRank& rank, const NodeOffer& its_offer) = 0;
  /// Of windows that lie in memory which several share.
  virtual bool takes_place() const { return false; }
  /// A second one takes the place of the first.
  virtual NodeExtent choose_extent() { return {}; }
  /// `all_joined`: every rank of the group did; else the next window has memory that is new to all.
  virtual void open(const NodeExtent&, bool all_joined) noexcept { (void)all_joined; }

  // When it is open. These throw Error where memory cannot be mapped, and may be asked again.
  virtual char* header(int local) = 0;
  /// Mailbox of `owner` that `origin` writes. This rank is one of them.
  virtual char* mailbox(int owner, int origin) = 0;
  /// The window of a peer, or where it is staged the staging memory. Not of an empty window.
  virtual char* window(int local) = 0;
  /// Null: peers write into the window.
  virtual const char* own_staging() = 0;

  /// What ranks have called that ends their part; farewell_of() by any thread, of ranks that were joined.
  virtual void say_farewell(Farewell farewell) = 0;
  virtual Farewell farewell_of(int local) = 0;

  /// For what may outlive the window: this rank's own memory.
  virtual std::shared_ptr<const void> own_control() const = 0;
};

/// What a rank knows of its window before the exchange.
struct NodeShape {
  NodeRank me;
  int locals = 0;  ///< ranks of the node
  const void* window = nullptr;
  std::optional<Allocation> around;  ///< the window, where peers can map it
  bool is_least = false;             ///< of its group
  TeamMemory* team = nullptr;        ///< of that device
};

/// For devices whose ranks share what each allocates and exports: control memory and staging memory of its own, which
/// peers map when they join. The control memory of a rank: its header | its farewell | mailbox of rank 0 | … | mailbox
/// of the last rank of the node. That of a team's windows lies in the same allocations (ControlBlocks), so that a
/// further window maps nothing new.
std::unique_ptr<TeamMemory> make_exported_team_memory();
std::unique_ptr<NodeMemory> make_exported_node_memory(Device& device, const NodeShape& shape);

}  // namespace mpix
