// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpix {

/// How the ranks of a communicator tell each other things, while a team or a window is made. Collective calls, in the
/// same order on every rank. The MPI face implements it over the communicator; tests, over threads.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A number that is the same for the ranks of one node, on all ranks alike.
  virtual int node_of(int rank) const = 0;
  /// all[r * bytes ...] = what rank r passed as `mine`.
  virtual void allgather(const void* mine, std::size_t bytes, void* all) = 0;
  /// Among the ranks of this node only, in their order: once for each window that is not foreseen, and before the
  /// window's others.
  virtual void node_allgather(const void* mine, std::size_t bytes, void* all) = 0;

  bool same_node(int other) const { return node_of(other) == node_of(rank()); }

  template <class T>
  std::vector<T> allgather(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    allgather(&mine, sizeof mine, all.data());
    return all;
  }
  template <class T>
  std::vector<T> node_allgather(const T& mine, std::size_t locals) {
    std::vector<T> all(locals);
    node_allgather(&mine, sizeof mine, all.data());
    return all;
  }
};

/// The ranks that one rank cannot reach, as it tells the others: few, as a rule, so there is no room for many.
class Unreached {
 public:
  void add(int rank) {
    if (count_ < most) ranks_[count_] = rank;
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  /// Of more than there is room for: all.
  bool has(int rank) const {
    for (std::uint32_t i = 0; i < count_ && i < most; ++i)
      if (ranks_[i] == rank) return true;
    return count_ > most;
  }

 private:
  static constexpr std::uint32_t most = 14;
  std::uint32_t count_ = 0;
  std::int32_t ranks_[most] = {};
};

}  // namespace mpix
