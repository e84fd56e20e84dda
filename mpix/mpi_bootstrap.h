// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mpi_library.h"
#include "team/bootstrap.h"

namespace mpix {

/// The ranks of a communicator exchange bytes while they create a window, and end with a verdict
/// that all share. A rank that fails on the way has left the sequence of calls that the others are
/// in; each exchange therefore carries whether its rank still goes along. Once one does not, the
/// exchange throws on all others, and nobody waits for anybody any more.
class MpiBootstrap : public Bootstrap {
 public:
  /// `nodes`, `processes`: by rank; the latter are empty where processes have no numbers. `flags`: what this rank wants
  /// all to know, whatever becomes of it.
  MpiBootstrap(MPI_Comm comm, std::vector<int> nodes, std::vector<int> processes, unsigned flags);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const override { return nodes_[static_cast<std::size_t>(rank)]; }
  std::int64_t process_of(int rank) const override {
    return processes_.empty() ? -1 : processes_[static_cast<std::size_t>(rank)];
  }
  void allgather(const void* mine, std::size_t bytes, void* all) override;
  using Bootstrap::allgather;

  /// The last call on every rank that failed: `failure` says how. Returns what went wrong on the first that failed, on
  /// all. Where a rank has come through all exchanges, so have the others: then it is not called.
  std::string agree(const std::string& failure);

  /// The flags of all ranks, ored, after the first exchange.
  unsigned flags_of_all() const { return flags_of_all_; }

 private:
  /// What one exchange moves: the engine's card in one collective call. Its size does not change with what is in there,
  /// so that ranks with another library are found out, and not a failing call of MPI.
  struct Packet {
    static constexpr std::size_t room = 376;
    std::uint32_t failed;
    std::uint32_t flags;
    char bytes[room];
  };

  void gather(const void* mine, std::size_t bytes, void* all);
  void exchange(const Packet& mine);
  [[noreturn]] void end(const std::string& verdict);

  MPI_Comm comm_;
  std::vector<int> nodes_;
  std::vector<int> processes_;
  const unsigned flags_;
  unsigned flags_of_all_ = 0;
  int rank_ = 0;
  std::vector<Packet> packets_;
  bool ended_ = false;
  std::string verdict_;
};

}  // namespace mpix
