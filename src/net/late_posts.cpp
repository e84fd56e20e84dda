// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/late_posts.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

/// A post is late by one to two intervals: the shortest where some were late lately. While all ride, to look often does
/// nothing but take streams their cores: 2,000 looks a second were a twelfth of the time of small exchanges.
constexpr auto shortest_interval = std::chrono::microseconds(500), longest_interval = std::chrono::microseconds(2000);
constexpr auto idle_before_sleep = std::chrono::milliseconds(50);

}  // namespace

LatePosts::~LatePosts() {
  if (begun_) end_service(*this);
}

void LatePosts::add(std::weak_ptr<HeldPosts> held) {
  const bool known = std::any_of(watched_.begin(), watched_.end(), [&](const auto& other) {
    return !held.owner_before(other) && !other.owner_before(held);
  });
  if (!known) watched_.push_back(std::move(held));
}

void LatePosts::begin() {
  Hold hold(mutex_);
  if (begun_) return;
  begin_service(*this);
  begun_ = true;
}

std::string LatePosts::failure() const {
  Hold hold(mutex_);
  return failure_;
}

void LatePosts::watch(std::weak_ptr<HeldPosts> held) {
  {
    Hold hold(mutex_);
    add(std::move(held));
    if (!std::exchange(asleep_, false)) return;
  }
  wake_service(*this);
}

void LatePosts::failed(const char*) noexcept {
  Hold hold(mutex_);
  failure_ = "out of memory";  // as short as needs none
}

/// Sends not under the lock: sending takes those of epochs, whose holders call watch().
Poller::Clock::duration LatePosts::look(Clock::time_point) {
  Watched looked_at;
  {
    Hold hold(mutex_);
    looked_at = std::exchange(watched_, {});
    idle_ = looked_at.empty() ? idle_ + interval_ : Clock::duration{};
    if (idle_ >= idle_before_sleep) {
      asleep_ = true;
      idle_ = {};
      return when_woken;
    }
  }
  interval_ = looked_at.empty() ? std::max<Clock::duration>(interval_, shortest_interval)
                                : std::clamp<Clock::duration>(2 * interval_, shortest_interval, longest_interval);
  const auto gone = std::remove_if(looked_at.begin(), looked_at.end(), [&](const auto& watched) {
    const auto held = watched.lock();
    if (!held) return true;
    const HeldPosts::Late late = held->send_late();
    if (late.some_sent) interval_ = shortest_interval;
    return !late.some_held;
  });
  looked_at.erase(gone, looked_at.end());
  Hold hold(mutex_);
  for (auto& held : looked_at) add(std::move(held));
  return interval_;
}

}  // namespace mpix
