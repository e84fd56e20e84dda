// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"

namespace mpix {

/// The plans of launches that may not have run yet: kernels read them when they run, and a window forgets a plan when
/// enough others have come after it. Whoever has seen that all launches have run may clear this.
class PlansInFlight {
 public:
  /// True when it is time to look whether they have run.
  bool add(const Launch::Keep& keep) {
    bool added = false;
    for (std::size_t i = 0; i < keep.size(); ++i) {
      if (!keep[i] || keep[i] == last_[i]) continue;
      last_[i] = keep[i];
      if (std::find(plans_.begin(), plans_.end(), keep[i]) != plans_.end()) continue;
      plans_.push_back(keep[i]);
      added = true;
    }
    return added && plans_.size() >= look_at_;
  }

  void have_run() {
    plans_.clear();
    last_ = {};
    look_at_ = few;
  }
  void have_not_run() { look_at_ = 2 * plans_.size(); }

 private:
  static constexpr std::size_t few = 64;
  std::vector<std::shared_ptr<const void>> plans_;
  Launch::Keep last_;  ///< epochs mostly repeat
  std::size_t look_at_ = few;
};

}  // namespace mpix
