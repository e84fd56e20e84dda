// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "mpi_library.h"
#include "team/bootstrap.h"
#include "team_state.h"

namespace mpix {

/// The ranks of a communicator exchange bytes while they create a window, and end with a verdict that all share. A rank
/// that fails on the way has left the sequence of calls that the others are in; each exchange therefore carries whether
/// its rank still goes along. Once one does not, the exchange throws on all others, and nobody waits for anybody any
/// more.
///
/// The sequence of a creation: of the team, where there is none, one exchange of all, and a second where there are
/// several nodes; then one of each node, unless the window is a foreseen one (team/neighbourhood.h); then of all again,
/// once or several times. A rank that fails goes through what is left of it up to the next exchange of all, whose
/// verdict ends it: in that of its node, too, if that is to come. The ranks of its node then have heard of it, and do
/// the same.
class MpiBootstrap : public Bootstrap {
 public:
  /// What ranks say of themselves in each exchange of all, whatever becomes of it.
  static constexpr unsigned lacks_team = 0x80;

  /// `more`: exchanges of all, beside those of a team, that come before the one of the node; no_node: that never comes.
  static constexpr int no_node = -1;
  MpiBootstrap(MPI_Comm comm, const CommState& state, unsigned flags, int more = 0);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(state_.nodes.size()); }
  int node_of(int rank) const override { return state_.nodes[static_cast<std::size_t>(rank)]; }
  void allgather(const void* mine, std::size_t bytes, void* all) override;
  void node_allgather(const void* mine, std::size_t bytes, void* all) override;
  using Bootstrap::allgather;
  using Bootstrap::node_allgather;

  /// The last call on every rank that failed: `failure` says how. Returns what went wrong on the first that failed, on
  /// all. Where a rank has come through all exchanges, so have the others: then it is not called.
  std::string agree(const std::string& failure, Fault fault = Fault::other);

  /// Another rank's, by an exchange: what is thrown from now on is no failure of this one.
  bool knows_of_failure() const { return ended_ || has_heard_; }

  /// The flags of all ranks, ored, as of the last exchange of all.
  unsigned flags_of_all() const { return flags_of_all_; }

 private:
  /// What one exchange moves: the first bytes of a card, as a rule all, in one collective call. Its size does not
  /// change with what is in there, so that ranks with another library are found out, and not a failing call of MPI.
  struct Packet {
    static constexpr std::size_t room = 60;
    std::uint8_t state;  ///< State
    std::uint8_t flags;
    std::uint8_t fault;  ///< of a rank that failed
    std::uint8_t unused;
    char bytes[room];
  };
  struct NodePacket {
    static constexpr std::size_t room = 312;
    std::uint8_t state;
    std::uint8_t unused[7];
    char bytes[room];
  };
  enum State : std::uint8_t { goes_along, failed, heard_of_one };

  unsigned flags() const { return flags_ | (state_.team ? 0u : lacks_team); }
  void gather(const void* mine, std::size_t bytes, void* all, MPI_Comm comm);
  void exchange(const Packet& mine, const std::string& failure);
  std::vector<NodePacket> exchange_on_node(const NodePacket& mine);
  [[noreturn]] void end(const std::string& verdict);

  MPI_Comm comm_;
  const CommState& state_;
  const unsigned flags_;
  unsigned flags_of_all_ = 0;
  int rank_ = 0;
  int exchanges_before_node_;  ///< of all, that are still to come
  bool node_is_over_ = false, has_heard_ = false;
  std::vector<Packet> packets_;
  bool ended_ = false;
  std::string verdict_;
  Fault fault_ = Fault::other;  ///< of the first rank that failed
};

/// Why body() fails on some rank, on all of them alike; none: it has come to its end on all. The fault is a rank's own
/// where it has one, and that of the rank that it is about; `of_others` on the others.
template <class Body>
std::optional<Error> failure_of(MpiBootstrap& bootstrap, Fault of_others, Body body) {
  std::optional<Error> own;
  bool is_own = false;
  std::string verdict;
  const auto fail = [&](const Error& error) {
    own = error;
    is_own = !bootstrap.knows_of_failure();
    verdict = bootstrap.agree(error.what(), error.fault());
  };
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::bad_alloc&) {
    fail(Error(Fault::memory, "out of memory"));
  } catch (const std::exception& error) {
    verdict = bootstrap.agree(error.what());
  }
  if (own && !is_own && verdict.find(own->what()) == std::string::npos) own.reset();
  return Error(own ? own->fault() : of_others, verdict);
}

/// Throws, on all ranks, where they have not made the same call.
void check_same_call(const std::string& name, Bootstrap& ranks, Fault fault);

/// A collective call of ranks that know each other: body(bootstrap) on all, or an error on all.
template <class Body>
void together(MPI_Comm comm, const CommState& ranks, Body body) {
  MpiBootstrap bootstrap(comm, ranks, 0, MpiBootstrap::no_node);
  if (const auto failure = failure_of(bootstrap, Fault::other, [&] { body(bootstrap); })) throw *failure;
}

}  // namespace mpix
