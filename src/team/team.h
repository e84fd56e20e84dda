// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/node_memory.h"
#include "net/network.h"
#include "team/bootstrap.h"

namespace mpix {

/// The ranks of a communicator, and what they know of each other that no window changes. Its windows share it, one
/// after another and at the same time; it may outlive them, and the device. Immutable but for `memory()`.
///
/// Who is told what, and when:
///
/// | what                                   | told to       | by                     | when |
/// |----------------------------------------|---------------|------------------------|------|
/// | build, device, group, settings; with several nodes network, address | all | Team, one exchange | once a team |
/// | whom the network does not reach        | all           | Team, one more         | once, if there are several nodes |
/// | NodeCard: what the memory is, tickets  | the node      | Neighbourhood          | each window, first; of a foreseen one none, or, where it is not as foreseen, to all and behind a WindowCard |
/// | WindowCard: size, keys, place          | all           | Neighbourhood::agree() | each window, last: all have mapped what they need, and peers may be written to |
class Team {
 public:
  /// Collective: one exchange, and a second where there are several nodes. Throws on all ranks, with the same text,
  /// where ranks cannot work together; and on one where it fails itself. `network`: to ranks of other nodes; null:
  /// none.
  /// `why_no_network`: where there is none.
  Team(Bootstrap& ranks, Device& device, const Settings& settings, Network* network,
       const std::string& why_no_network = "");
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return me_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  bool same_node(int other) const { return node_of(other) == node_of(me_); }
  bool spans_nodes() const { return locals_.size() < nodes_.size(); }

  /// The ranks of this node, in the order of their numbers there.
  const std::vector<int>& locals() const { return locals_; }
  /// The number of a rank of this node; -1: it is on another one.
  int local(int rank) const;
  /// What a rank of this node works with.
  const std::string& device_of(int local) const { return devices_[static_cast<std::size_t>(local)]; }
  /// The ranks of this node that share memory with this one, or could; in order, this one among them. All are reached
  /// by memory; of the others of the node none is.
  const std::vector<int>& group() const { return group_; }
  /// For the windows that are being made.
  TeamMemory* memory() const { return memory_.get(); }
  /// See Neighbourhood. More than one in a row, as some programs create windows of two kinds in turns.
  static constexpr int windows_to_foresee = 2;
  bool foresees_window() const { return memory_->foreseeable_in_a_row >= windows_to_foresee; }

  /// Between nodes all ranks talk by messages of kernels, which a relay carries (wire/relayed.h): some rank's device
  /// cannot do otherwise, and so all speak one language, host streams too.
  bool relays() const { return relays_; }
  /// What this rank knows of a rank of another node.
  struct Far {
    Connection connection = 0;
    bool reachable = false;      ///< each side can connect to the other
    bool gathers_small = false;  ///< see RemotePeers
    bool other_device = false;   ///< than this rank's: perhaps on the same machine
  };
  const Far& far(int rank) const { return far_[static_cast<std::size_t>(rank)]; }
  bool gathers_small() const { return far(me_).gathers_small; }
  /// Why some rank of another node is not reachable.
  const std::string& why_not() const { return why_not_; }

 private:
  struct Card;
  Card make_card(Device& device, const Settings& settings, const Network* network);
  std::vector<Card> exchange(Bootstrap& ranks, const Card& mine) const;
  template <class Text>
  static std::string difference(const std::vector<Card>& cards, const std::string& what, Text text_of);
  void check_cards(const std::vector<Card>& cards);
  void connect(const std::vector<Card>& cards, Network& network);

  const int me_;
  std::vector<int> nodes_;  ///< by rank
  std::vector<int> locals_, group_;
  std::vector<std::string> devices_;  ///< by number on the node
  std::unique_ptr<TeamMemory> memory_;
  bool relays_ = false;
  std::string why_not_;
  std::vector<Far> far_;  ///< by rank; empty: no rank is on another node
};

}  // namespace mpix
