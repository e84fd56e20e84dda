// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"

namespace mpix {

/// Somebody's posts that wait for a message to ride in.
class HeldPosts {
 public:
  struct Late {
    bool some_sent, some_held;
  };
  virtual ~HeldPosts() = default;
  /// Sends those that were held when this was last called.
  virtual Late send_late() = 0;
};

/// Sends posts that were held for a message to ride in, and which no message came for. It looks at short intervals
/// while posts are held, and not at all when none has been for some time.
class LatePosts final : public Poller {
 public:
  LatePosts() = default;
  ~LatePosts() override;

  /// Before the first post is held; again it does nothing. Throws Error where there can be no thread.
  void begin();
  /// A post of these is held.
  void watch(std::weak_ptr<HeldPosts> held);
  /// Not empty: held posts are not looked after any more, and why.
  std::string failure() const;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  using Watched = std::vector<std::weak_ptr<HeldPosts>>;  // a window that ends does not wait for the service

  void add(std::weak_ptr<HeldPosts> held);  // under mutex_

  mutable std::mutex mutex_;  ///< guards what follows
  Watched watched_;
  std::string failure_;
  bool begun_ = false;
  bool asleep_ = true;
  // by look() alone
  Clock::duration interval_{};
  Clock::duration idle_{};
};

}  // namespace mpix
