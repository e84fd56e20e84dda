// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/free_posts.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

using Hold = std::lock_guard<std::mutex>;

/// Of a post whose point has passed: a carrier may well be coming to run.
constexpr auto time_for_a_carrier = std::chrono::microseconds(30);
constexpr auto shortest_nap = std::chrono::microseconds(25), longest_nap = std::chrono::microseconds(100);
constexpr std::size_t most_spare = 1024;  ///< points: a stream of a GPU has room for about as many launches

}  // namespace

std::shared_ptr<StreamPoint> FreePosts::add(Stream stream, const ExposurePlan& plan, const EnqueuedEpochs& enqueued) {
  Hold hold(mutex_);
  if (ended_) return nullptr;
  std::shared_ptr<StreamPoint> point;
  try {
    if (!begun_) begin_service(*this, when_woken);
    begun_ = true;
    Post post;
    if (!spare_.empty()) {
      post = std::move(spare_.back());
      spare_.pop_back();
    }
    if (!post.point) post.point = streams_.new_point();
    post.passed_since = {};
    post.raises.clear();
    for (const PostPeer& peer : plan.posts.on_host)
      post.raises.push_back({peer.there, peer.bell, enqueued.with(peer.rank).opened + 1});
    auto chain = std::find_if(chains_.begin(), chains_.end(), [&](const Chain& c) { return c.stream == stream; });
    if (chain == chains_.end()) chain = chains_.insert(chain, Chain{stream, {}});
    post.point->set(stream);
    point = post.point;
    chain->posts.push_back(std::move(post));
  } catch (const Error& error) {
    log(LogLevel::debug, std::string("a post is prompt: ") + error.what());
    return nullptr;
  }
  nap_ = shortest_nap;
  if (!std::exchange(is_looking_, true)) wake_service(*this);
  return point;
}

void FreePosts::drop_first(Chain& chain) {
  // Where a call still holds the point the post may be launched behind it.
  if (chain.posts.front().point.use_count() == 1 && spare_.size() < most_spare)
    spare_.push_back(std::move(chain.posts.front()));
  chain.posts.pop_front();
}

/// Whether something has gone.
bool FreePosts::look_at(Chain& chain, Clock::time_point now) {
  bool moved = false;
  for (; chain.posts.size() > 1 && chain.posts[1].point->passed(); moved = true) drop_first(chain);
  Post& first = chain.posts.front();
  if (!first.point->passed()) return moved;
  if (first.passed_since == Clock::time_point{}) {
    first.passed_since = now;
    return true;
  }
  if (now - first.passed_since < time_for_a_carrier) return true;
  streams_.raise(first.raises);
  ++raised_;
  drop_first(chain);
  return true;
}

Poller::Clock::duration FreePosts::look(Clock::time_point now) {
  Hold hold(mutex_);
  bool moved = false;
  for (auto chain = chains_.begin(); chain != chains_.end();) {
    if (!chain->posts.empty() && look_at(*chain, now)) moved = true;
    chain = chain->posts.empty() ? chains_.erase(chain) : std::next(chain);
  }
  is_looking_ = !chains_.empty();
  if (!is_looking_) return when_woken;
  nap_ = moved ? Clock::duration(shortest_nap) : std::min<Clock::duration>(2 * nap_, longest_nap);
  return nap_;
}

void FreePosts::failed(const char* why) noexcept {
  stall_.failed(Call::post, why);
  Hold hold(mutex_);
  ended_ = true;
  chains_.clear();
}

bool FreePosts::settle() {
  Hold hold(mutex_);
  chains_.clear();
  return streams_.have_raised();
}

void FreePosts::stop() noexcept {
  {
    Hold hold(mutex_);
    ended_ = true;
    chains_.clear();
    if (!std::exchange(begun_, false)) return;
  }
  end_service(*this);
}

std::uint64_t FreePosts::raised() const {
  Hold hold(mutex_);
  return raised_;
}

}  // namespace mpix
