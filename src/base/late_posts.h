// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

/// The thread that sends posts which were held for a message to ride in (offnode/remote_peers.h), and which no message
/// came for. It looks at short intervals while posts are held, and sleeps when none has been for some time.
class LatePosts {
 public:
  LatePosts() = default;
  ~LatePosts();
  LatePosts(const LatePosts&) = delete;
  LatePosts& operator=(const LatePosts&) = delete;

  /// Before the first post is held; again it does nothing. Throws Error where there can be no thread.
  void begin();
  /// A post of these peers is held.
  void watch(std::weak_ptr<HeldPosts> peers);
  /// Not empty: held posts are not looked after any more, and why.
  std::string failure() const;

 private:
  using Watched = std::vector<std::weak_ptr<HeldPosts>>;  // a window that ends does not wait for this thread

  void work();
  void add(std::weak_ptr<HeldPosts> peers);  // under mutex_

  void look(std::unique_lock<std::mutex>& hold, std::chrono::microseconds& interval);

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  Watched watched_;
  std::string failure_;
  bool asleep_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mpix
