// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "base/error.h"
#include "runtime.h"

namespace mpix {

inline void refuse_in_child(const char* kind) {
  if (is_child_of_fork())
    throw Error(Fault::unsupported, std::string("a child of fork() cannot use a ") + kind + " of its parent");
}

/// The handles of one kind that programs have, so that others are refused. Never destroyed, as MPI_Finalize may be
/// called when the process ends.
template <class Handle>
class Handles {
 public:
  enum class Children { are_refused, may_use_them };
  explicit Handles(const char* kind, Children children = Children::are_refused) : kind_(kind), children_(children) {}

  void add(Handle handle) {
    const std::lock_guard<std::mutex> hold(mutex_);
    all_.insert(handle);
  }
  void remove(Handle handle) {
    const std::lock_guard<std::mutex> hold(mutex_);
    all_.erase(handle);
  }
  /// Throws where it is none of them. `use` is called while it stays one.
  template <class Use>
  void require(Handle handle, Use use) const {
    if (children_ == Children::are_refused) refuse_in_child(kind_);
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!handle || all_.count(handle) == 0) throw Error(Fault::argument, std::string("no such ") + kind_);
    use();
  }
  void require(Handle handle) const {
    require(handle, [] {});
  }
  bool any() const {
    const std::lock_guard<std::mutex> hold(mutex_);
    return !all_.empty();
  }
  std::set<Handle> all() const {
    const std::lock_guard<std::mutex> hold(mutex_);
    return all_;
  }

 private:
  const char* const kind_;
  const Children children_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::set<Handle> all_;
};

}  // namespace mpix
