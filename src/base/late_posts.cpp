// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/late_posts.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/thread.h"

namespace mpix {
namespace {

/// A post is late by one to two intervals: the shortest where some were late lately. While all ride, to look often does
/// nothing but take streams their cores: 2,000 looks a second were a twelfth of the time of small exchanges.
constexpr auto shortest_interval = std::chrono::microseconds(500), longest_interval = std::chrono::microseconds(2000);
constexpr auto idle_before_sleep = std::chrono::milliseconds(50);

}  // namespace

LatePosts::~LatePosts() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LatePosts::add(std::weak_ptr<HeldPosts> peers) {
  const bool known = std::any_of(watched_.begin(), watched_.end(), [&](const auto& other) {
    return !peers.owner_before(other) && !other.owner_before(peers);
  });
  if (!known) watched_.push_back(std::move(peers));
}

void LatePosts::begin() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("posts that are late", [this] { work(); });
}

std::string LatePosts::failure() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return failure_;
}

void LatePosts::watch(std::weak_ptr<HeldPosts> peers) {
  std::lock_guard<std::mutex> hold(mutex_);
  add(std::move(peers));
  if (asleep_) changed_.notify_one();
}

void LatePosts::work() {
  std::chrono::microseconds interval = shortest_interval;
  auto idle = std::chrono::microseconds(0);
  std::unique_lock<std::mutex> hold(mutex_);
  while (!stop_) {
    idle = watched_.empty() ? idle + interval : std::chrono::microseconds(0);
    if (idle >= idle_before_sleep) {
      asleep_ = true;
      changed_.wait(hold, [this] { return stop_ || !watched_.empty(); });
      asleep_ = false;
    }
    try {
      look(hold, interval);
    } catch (const std::exception&) {
      if (!hold.owns_lock()) hold.lock();
      failure_ = "out of memory";  // as short as needs none
      return;
    }
    if (!stop_) changed_.wait_for(hold, interval, [this] { return stop_; });
  }
}

/// Not under the lock: sending takes those of epochs, whose holders call watch().
void LatePosts::look(std::unique_lock<std::mutex>& hold, std::chrono::microseconds& interval) {
  Watched looked_at = std::exchange(watched_, {});
  if (!looked_at.empty()) interval = std::min<std::chrono::microseconds>(2 * interval, longest_interval);
  hold.unlock();
  const auto gone = std::remove_if(looked_at.begin(), looked_at.end(), [&](const auto& watched) {
    const auto peers = watched.lock();
    if (!peers) return true;
    const HeldPosts::Late late = peers->send_late();
    if (late.some_sent) interval = shortest_interval;
    return !late.some_held;
  });
  looked_at.erase(gone, looked_at.end());
  hold.lock();
  for (auto& peers : looked_at) add(std::move(peers));
}

}  // namespace mpix
