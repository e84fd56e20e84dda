// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "core/bootstrap.h"
#include "mpi_library.h"

namespace mpix {

/// The ranks of a communicator exchange bytes while they create a window, and end with a verdict
/// that all share. A rank that fails on the way has left the sequence of calls that the others are
/// in; each exchange therefore carries whether its rank still goes along. Once one does not, the
/// exchange throws on all others, and nobody waits for anybody any more.
class MpiBootstrap : public Bootstrap {
 public:
  MpiBootstrap(MPI_Comm comm, std::vector<int> nodes);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  bool same_node(int rank) const override;
  void allgather(const void* mine, std::size_t bytes, void* all) override;
  using Bootstrap::allgather;

  /// The last call on every rank: `failure` is empty where all went well. Returns empty where it
  /// did so on all ranks, else what went wrong on the first that failed.
  std::string agree(const std::string& failure);

 private:
  /// What one exchange moves: large enough that the engine's messages take one collective each.
  struct Packet {
    static constexpr std::size_t room = 248;
    std::uint64_t failed;
    char bytes[room];
  };

  void gather(const void* mine, std::size_t bytes, void* all);
  void exchange(const Packet& mine);
  [[noreturn]] void end(const std::string& verdict);

  MPI_Comm comm_;
  std::vector<int> nodes_;
  int rank_ = 0;
  std::vector<Packet> packets_;
  bool ended_ = false;
  std::string verdict_;
};

}  // namespace mpix
