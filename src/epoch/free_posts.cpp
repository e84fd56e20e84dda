// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/free_posts.h"

#include <algorithm>
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
/// A look calls the driver. So there are fewer where carriers have come in time at so many looks in a row, as at first.
constexpr unsigned calm_looks = 16;
constexpr auto calm_nap = std::chrono::microseconds(250);

constexpr int most_credit = 8;
constexpr unsigned good_posts_for_credit = 64;
/// Without credit: then the window tries again, for a part of what it had at first.
constexpr unsigned prompt_posts_in_a_row = 1024;
constexpr int credit_to_try_again = 2;

constexpr std::size_t first_ring = 16, most_in_ring = 1024;  ///< a stream of a GPU has room for about 1,000 launches

}  // namespace

FreePosts::FreePosts(PostStreams& streams, StallHandler& stall, bool always)
    : streams_(streams), stall_(stall), always_(always), credit_(most_credit), calm_looks_(calm_looks) {}

// ---- the calls ---------------------------------------------------------------------------------------

bool FreePosts::has_credit() {
  if (always_ || credit_.load(std::memory_order_relaxed) > 0) return true;
  if (++prompt_posts_ < prompt_posts_in_a_row) return false;
  prompt_posts_ = 0;
  credit_.store(credit_to_try_again, std::memory_order_relaxed);
  return true;
}

std::shared_ptr<StreamPoint> FreePosts::add(Stream stream, std::uint64_t stream_number, const ExposurePlan& plan,
                                            const EnqueuedEpochs& enqueued) {
  if (ended_.load(std::memory_order_relaxed) || !has_credit()) return nullptr;
  try {
    if (!begun_) begin_service(*this, when_woken);
    begun_ = true;
    Chain& chain = chain_of(stream_number);
    const std::uint64_t number = chain.made.load(std::memory_order_relaxed);
    if (number - chain.gone.load(std::memory_order_acquire) == chain.ring.size()) {
      Hold hold(mutex_);
      if (!chain.grow()) return nullptr;
    }
    Post& post = chain.post(number);
    // Where a call still holds the point the post may be launched behind it.
    if (post.point.use_count() != 1) post.point = streams_.new_point();
    post.raises.clear();
    for (const PostPeer& peer : plan.posts.on_host)
      post.raises.push_back({peer.there, peer.bell, enqueued.with(peer.rank).opened + 1});
    post.point->set(stream);
    chain.made.store(number + 1);
    // In one order with the end of look(), which says that it will not look, and then reads `made` once more.
    if (!is_looking_.load()) {
      is_looking_.store(true);
      wake_service(*this);
    }
    return post.point;
  } catch (const Error& error) {
    log(LogLevel::debug, std::string("a post is prompt: ") + error.what());
    return nullptr;
  }
}

FreePosts::Chain& FreePosts::chain_of(std::uint64_t stream_number) {
  for (Chain& chain : chains_)
    if (chain.stream_number == stream_number) return chain;
  Hold hold(mutex_);
  auto chain = std::find_if(chains_.begin(), chains_.end(), [](const Chain& c) { return c.is_empty(); });
  if (chain == chains_.end()) chain = chains_.emplace(chains_.end());
  chain->stream_number = stream_number;
  if (chain->ring.empty()) chain->ring.resize(first_ring);
  return *chain;
}

bool FreePosts::Chain::grow() {
  if (ring.size() == most_in_ring) return false;
  std::vector<Post> greater(2 * ring.size());
  for (std::uint64_t number = gone.load(); number != made.load(); ++number)
    greater[number & (greater.size() - 1)] = std::move(post(number));
  ring = std::move(greater);
  return true;
}

bool FreePosts::settle() {
  Hold hold(mutex_);
  drop_all();
  return streams_.have_raised();
}

void FreePosts::stop() noexcept {
  ended_.store(true);
  {
    Hold hold(mutex_);
    drop_all();
  }
  if (std::exchange(begun_, false)) end_service(*this);
}

// ---- the service -------------------------------------------------------------------------------------

void FreePosts::Chain::drop_to(std::uint64_t number) {
  gone.store(number, std::memory_order_release);
  passed_since = {};
}

void FreePosts::drop_all() noexcept {
  for (Chain& chain : chains_) chain.drop_to(chain.made.load());
}

/// The first has passed. In growing steps, then in ones that are halved.
std::uint64_t FreePosts::last_passed(Chain& chain, std::uint64_t first, std::uint64_t end) {
  const auto passed = [&](std::uint64_t number) { return number < end && chain.post(number).point->passed(); };
  std::uint64_t last = first, step = 1;
  for (; passed(last + step); step *= 2) last += step;
  while ((step /= 2) > 0)
    if (passed(last + step)) last += step;
  return last;
}

FreePosts::Seen FreePosts::look_at(Chain& chain, Clock::time_point now) {
  const std::uint64_t first = chain.gone.load(std::memory_order_relaxed), end = chain.made.load();
  if (first == end || !chain.post(first).point->passed()) return Seen::nothing;
  const std::uint64_t last = last_passed(chain, first, end);
  if (last != first) {
    chain.drop_to(last);
    good_posts_ += static_cast<unsigned>(last - first);
  }
  if (chain.passed_since == Clock::time_point{}) {
    chain.passed_since = now;
    return Seen::passed;
  }
  if (now - chain.passed_since < time_for_a_carrier) return Seen::passed;
  raised_.fetch_add(1, std::memory_order_relaxed);  // first: a thread that waits for the peer finds it counted
  streams_.raise(chain.post(last).raises);
  chain.drop_to(last + 1);
  return Seen::late;
}

Poller::Clock::duration FreePosts::look(Clock::time_point now) {
  Hold hold(mutex_);
  Seen most = Seen::nothing;
  for (Chain& chain : chains_) {
    const Seen seen = look_at(chain, now);
    if (seen == Seen::late) credit_.fetch_sub(1, std::memory_order_relaxed);
    most = std::max(most, seen);
  }
  if (most == Seen::late) {
    good_posts_ = calm_looks_ = 0;
  } else if (most == Seen::passed) {
    ++calm_looks_;
  }
  if (good_posts_ >= good_posts_for_credit) {
    good_posts_ = 0;
    if (credit_.load(std::memory_order_relaxed) < most_credit) credit_.fetch_add(1, std::memory_order_relaxed);
  }
  const auto are_empty = [this] {
    return std::all_of(chains_.begin(), chains_.end(), [](const Chain& chain) { return chain.is_empty(); });
  };
  if (are_empty()) {
    is_looking_.store(false);
    if (are_empty()) return when_woken;
    is_looking_.store(true);
  }
  if (calm_looks_ >= calm_looks) return calm_nap;
  nap_ = most != Seen::nothing ? Clock::duration(shortest_nap)
                               : std::clamp<Clock::duration>(2 * nap_, shortest_nap, longest_nap);
  return nap_;
}

void FreePosts::failed(const char* why) noexcept {
  stall_.failed(Call::post, why);
  ended_.store(true);
  Hold hold(mutex_);
  drop_all();
}

}  // namespace mpix
