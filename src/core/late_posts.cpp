// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "core/late_posts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/remote_peers.h"
#include "core/signals_blocked.h"

namespace mpix {
namespace {

/// A post is late by one to two of these.
constexpr auto interval = std::chrono::microseconds(500);
constexpr unsigned idle_looks_before_sleep = 100;

}  // namespace

LatePosts::~LatePosts() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LatePosts::add(std::weak_ptr<RemotePeers> peers) {
  const bool known = std::any_of(watched_.begin(), watched_.end(), [&](const auto& other) {
    return !peers.owner_before(other) && !other.owner_before(peers);
  });
  if (!known) watched_.push_back(std::move(peers));
}

void LatePosts::watch(std::weak_ptr<RemotePeers> peers) {
  std::lock_guard<std::mutex> hold(mutex_);
  add(std::move(peers));
  if (!thread_.joinable()) {
    SignalsBlocked blocked;
    thread_ = std::thread([this] { work(); });
  }
  if (asleep_) changed_.notify_one();
}

void LatePosts::work() {
  unsigned idle_looks = 0;
  std::unique_lock<std::mutex> hold(mutex_);
  while (!stop_) {
    if (watched_.empty() && ++idle_looks >= idle_looks_before_sleep) {
      asleep_ = true;
      changed_.wait(hold, [this] { return stop_ || !watched_.empty(); });
      asleep_ = false;
    }
    if (!watched_.empty()) idle_looks = 0;
    // Not under the lock: sending takes those of epochs, whose holders call watch().
    Watched looked_at = std::exchange(watched_, {});
    hold.unlock();
    const auto gone = std::remove_if(looked_at.begin(), looked_at.end(), [](const auto& watched) {
      const auto peers = watched.lock();
      return !peers || !peers->send_late();
    });
    looked_at.erase(gone, looked_at.end());
    hold.lock();
    for (auto& peers : looked_at) add(std::move(peers));
    if (!stop_) changed_.wait_for(hold, interval, [this] { return stop_; });
  }
}

}  // namespace mpix
