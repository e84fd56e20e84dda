// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace mpix {

/// How the ranks of a window find each other while it is created. Collective calls, in the same order on
/// every rank. The MPI face implements it over the window's communicator; tests, over threads.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A number that is the same for the ranks of one node, on all ranks alike.
  virtual int node_of(int rank) const = 0;
  /// A number that stands for the same process in every window; -1: not known, of no rank.
  virtual std::int64_t process_of(int) const { return -1; }
  /// all[r * bytes ...] = what rank r passed as `mine`.
  virtual void allgather(const void* mine, std::size_t bytes, void* all) = 0;

  bool same_node(int other) const { return node_of(other) == node_of(rank()); }
  bool spans_nodes() const {
    for (int other = 0; other < size(); ++other)
      if (!same_node(other)) return true;
    return false;
  }

  template <class T>
  std::vector<T> allgather(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    allgather(&mine, sizeof mine, all.data());
    return all;
  }
};

/// How ranks of other nodes number this one, if each numbers the ranks of other nodes than its own.
class NumbersElsewhere {
 public:
  explicit NumbersElsewhere(const Bootstrap& ranks) : ranks_(ranks) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Node& node = nodes_[ranks.node_of(rank)];
      ++node.ranks;
      if (rank < ranks.rank()) ++node.below_this;
    }
  }
  /// Of this rank, at a rank of another node.
  std::size_t number_at(int rank) const { return static_cast<std::size_t>(ranks_.rank() - node(rank).below_this); }
  /// How many there are.
  std::size_t count_at(int rank) const { return static_cast<std::size_t>(ranks_.size() - node(rank).ranks); }

 private:
  struct Node {
    int ranks = 0, below_this = 0;
  };
  const Node& node(int rank) const { return nodes_.at(ranks_.node_of(rank)); }

  const Bootstrap& ranks_;
  std::map<int, Node> nodes_;
};

/// The ranks that one rank cannot reach, as it tells the others: few, as a rule, so there is no room for many.
class Unreached {
 public:
  void add(int rank) {
    if (count_ < most) ranks_[count_] = rank;
    ++count_;
  }
  /// Of more than there is room for: all.
  bool has(int rank) const {
    for (std::uint32_t i = 0; i < count_ && i < most; ++i)
      if (ranks_[i] == rank) return true;
    return count_ > most;
  }

 private:
  static constexpr std::uint32_t most = 23;
  std::uint32_t count_ = 0;
  std::int32_t ranks_[most] = {};
};

}  // namespace mpix
