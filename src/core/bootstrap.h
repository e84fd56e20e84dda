// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <vector>

namespace mpix {

/// How the ranks of a window find each other while it is created. Collective calls, in the same order on
/// every rank. The MPI face implements it over the window's communicator; tests, over threads.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool same_node(int rank) const = 0;
  /// all[r * bytes ...] = what rank r passed as `mine`.
  virtual void allgather(const void* mine, std::size_t bytes, void* all) = 0;

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

}  // namespace mpix
