// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <list>
#include <memory>

#include "gpu/device.h"

namespace mpix {

/// What the device keeps of a window's last few different launches. A launch is known by its call and its plans;
/// these are kept alive here, so that an address stands for one plan.
class PreparedLaunches {
 public:
  std::unique_ptr<PreparedLaunch>* of(const Launch& launch) {
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!at->is(launch)) continue;
      if (at != entries_.begin()) entries_.splice(entries_.begin(), entries_, at);
      return &entries_.front().prepared;
    }
    if (entries_.size() == capacity) entries_.pop_back();
    entries_.push_front(Entry{launch.call, launch.keep, launch.program.post_count, launch.before_copies, nullptr});
    return &entries_.front().prepared;
  }

 private:
  struct Entry {
    Call call;
    Launch::Keep keep;
    std::uint32_t post_count;
    bool before_copies;
    std::unique_ptr<PreparedLaunch> prepared;

    bool is(const Launch& launch) const {
      return call == launch.call && keep == launch.keep && post_count == launch.program.post_count &&
             before_copies == launch.before_copies;
    }
  };
  static constexpr std::size_t capacity = 16;
  std::list<Entry> entries_;
};

}  // namespace mpix
