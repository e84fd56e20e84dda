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
/// A look calls the driver, where it is in the way of the program's launches. So where carriers have come in time at so
/// many looks in a row there are fewer.
constexpr unsigned calm_looks = 16;
constexpr auto calm_nap = std::chrono::microseconds(250);
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

/// The first has passed. How many have that are not the last to: in growing steps, then in ones that are halved.
std::size_t FreePosts::count_before_last_passed(const Chain& chain) {
  const auto passed = [&](std::size_t i) { return i < chain.posts.size() && chain.posts[i].point->passed(); };
  std::size_t last = 0, step = 1;
  for (; passed(last + step); step *= 2) last += step;
  while ((step /= 2) > 0)
    if (passed(last + step)) last += step;
  return last;
}

FreePosts::Seen FreePosts::look_at(Chain& chain, Clock::time_point now) {
  if (!chain.posts.front().point->passed()) return Seen::nothing;
  for (std::size_t gone = count_before_last_passed(chain); gone > 0; --gone) drop_first(chain);
  Post& first = chain.posts.front();
  if (first.passed_since == Clock::time_point{}) {
    first.passed_since = now;
    return Seen::passed;
  }
  if (now - first.passed_since < time_for_a_carrier) return Seen::passed;
  streams_.raise(first.raises);
  ++raised_;
  drop_first(chain);
  return Seen::late;
}

Poller::Clock::duration FreePosts::look(Clock::time_point now) {
  Hold hold(mutex_);
  Seen most = Seen::nothing;
  for (auto chain = chains_.begin(); chain != chains_.end();) {
    if (!chain->posts.empty()) most = std::max(most, look_at(*chain, now));
    chain = chain->posts.empty() ? chains_.erase(chain) : std::next(chain);
  }
  if (most != Seen::nothing) calm_looks_ = most == Seen::late ? 0 : calm_looks_ + 1;
  is_looking_ = !chains_.empty();
  if (!is_looking_) return when_woken;
  if (calm_looks_ >= calm_looks) return calm_nap;
  nap_ = most != Seen::nothing ? Clock::duration(shortest_nap) : std::min<Clock::duration>(2 * nap_, longest_nap);
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
