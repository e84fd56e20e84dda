// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "net/network.h"
#include "team/team.h"
#include "team/window_card.h"
#include "wire/farewell.h"

namespace mpix {

/// What a target tells its origin with its first post.
struct FirstPost {
  RemoteMemory block;   ///< the target's memory for this origin
  RemoteMemory window;  ///< where the network writes into it; else of no meaning
};

/// What a rank has for each rank of another node, whether or not an epoch of its own has named that: where posts land,
/// and what the first one tells. Each has one writer, the rank that it is for.
struct Doorstep {
  std::uint64_t posts;  ///< see below
  FirstPost first;
};
static_assert(sizeof(Doorstep) == 40 && offsetof(Doorstep, first) == 8, "it is written from another node");

/// The doorsteps of one window: how ranks of different nodes find each other's memory when an epoch first names them.
/// A window of P ranks so takes 40 bytes a rank, and each knows where the others' tables lie; whatever else a pair
/// needs is allocated when an epoch names the rank (RemotePeers, RelayPeers), and told by the first post t → o:
///
/// | what    | lies in          | written by                    | read by                    | order |
/// |---------|------------------|-------------------------------|----------------------------|-------|
/// | `first` | o's table, for t | t's NIC, with its first post  | o, when it is told         | a write of the transfer whose signal is the first post |
/// | `posts` | likewise         | t's NIC: each post adds 2^32; the first also the low half | o acquires | a post comes behind t's uses of the window (offnode/remote_peers.h) |
///
/// The low half of `posts` is not 0 from the first post on: it tells the name of t's inlet for o. Its highest bit is
/// t's farewell, added once in its MPI_Finalize, and read by hang reports alone (wire/farewell.h). Posts are counted in
/// the upper half, where an overflow changes nothing else. t's half of the pair is made before its first post starts,
/// so o may write there as soon as it is told.
///
/// **Nobody waits for more than MPI allows.** t tells with a post, which it owes o anyway, to a table that was there
/// before the window was; so a post waits for nothing. o's first epoch waits for its post, which is MPI's rule; only
/// later ones may go ahead of theirs. t need know nothing of o's half: what o reads is written to the table, and what t
/// answers the relay goes where o's question says.
///
/// Each record is written once in the life of a window, so nothing is acknowledged. tests/model/riding.pml has it.
class Doorsteps {
 public:
  static constexpr std::uint64_t one_post = std::uint64_t{1} << 32;

  /// `why_not`: why none is reached, if that is known; or empty.
  explicit Doorsteps(std::string why_not = "") : why_not_(why_not.empty() ? "it has no network" : std::move(why_not)) {}

  /// Where there are ranks of other nodes; without it, and where there is no memory for it, none is reached.
  void offer(const Team& team, Network& network, WindowCard& card);
  /// When all have. Fails nowhere.
  void connect(const Team& team, const std::vector<WindowCard>& cards);
  /// Nothing more lands.
  void withdraw() { exposed_ = nullptr; }

  /// A pair needs both sides: each has a table, and the team knows which ranks reach each other.
  bool reaches(int rank) const { return rank_count() > 0 && reaches_[static_cast<std::size_t>(rank)]; }
  /// There are ranks of other nodes, and some of them can be reached.
  bool reaches_some() const { return reaches_some_; }
  /// Why not all are.
  const std::string& why_not() const { return why_not_; }
  /// Asks a rank for a sign of life. Empty, or, with its number, why it cannot be reached.
  std::string probe(Network& network, Connection to, int rank) const;

  // What has come from a rank.
  bool has_told(int rank) const { return inlet_told(rank) != 0; }
  /// Once it has told; does not change.
  const FirstPost& first(int rank) const { return table_[static_cast<std::size_t>(rank)].first; }
  /// Of its inlet; 0: messages are written.
  std::uint64_t inlet(int rank) const { return inlet_told(rank) - without_inlet; }
  /// Modulo 2^32.
  std::uint32_t posts(int rank) const { return static_cast<std::uint32_t>(load(rank) >> 32); }
  /// By any thread, of any rank.
  Farewell farewell_of(int rank) const {
    return reaches(rank) && (load(rank) & finalized) ? Farewell::finalize : Farewell::none;
  }

  // What goes there.
  NetworkWrite tell(int rank, const FirstPost& told, const Registration* registered) const {
    return {&told, registered, sizeof told, table(rank), offset_of_mine() + offsetof(Doorstep, first)};
  }
  NetworkSignal first_posts(int rank, std::uint64_t count, std::uint64_t inlet) const {
    return post(rank, count * one_post + (inlet < most_inlets ? inlet : 0) + without_inlet);
  }
  NetworkSignal further_posts(int rank, std::uint64_t count) const { return post(rank, count * one_post); }
  /// Of MPI_Finalize.
  NetworkSignal farewell(int rank) const { return post(rank, finalized); }

 private:
  static constexpr std::uint32_t without_inlet = 1;
  static constexpr std::uint64_t finalized = std::uint64_t{1} << 31;
  static constexpr std::uint64_t most_inlets = finalized - without_inlet;

  std::size_t rank_count() const { return tables_.size(); }
  std::uint32_t inlet_told(int rank) const { return static_cast<std::uint32_t>(load(rank) & (finalized - 1)); }
  std::uint64_t load(int rank) const { return load_acquire(&table_[static_cast<std::size_t>(rank)].posts); }
  const RemoteMemory& table(int rank) const { return tables_[static_cast<std::size_t>(rank)]; }
  std::uint64_t offset_of_mine() const { return static_cast<std::uint64_t>(me_) * sizeof(Doorstep); }
  NetworkSignal post(int rank, std::uint64_t value) const {
    return {NetworkSignal::Kind::add, value, table(rank), offset_of_mine() + offsetof(Doorstep, posts)};
  }

  int me_ = 0;
  std::vector<Doorstep> table_;                  ///< by rank
  std::shared_ptr<const Registration> exposed_;  ///< ends before the table
  std::vector<RemoteMemory> tables_;             ///< of the others, by rank
  std::vector<bool> reaches_;
  bool reaches_some_ = false;
  std::string why_not_;
};

}  // namespace mpix
