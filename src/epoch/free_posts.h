// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/service.h"
#include "device/device.h"
#include "epoch/plan.h"
#include "team/enqueued_epochs.h"

namespace mpix {

/// Free posts of one window (MPIX_POST): the call enqueues no launch. It sets a point in its stream, and the
/// window's next call carries the post, as one that is lazy; a point costs the CPU an eighth of what a launch does. But
/// the program has promised nothing: a peer may wait for the post before the next call is made, or before what that
/// enqueued has run. So where a point has passed and nothing shows that the post has gone, the service tells the peers
/// itself, by a store from no stream of the program's.
///
/// A post k of one window, of origin o:
///
/// | what               | by            | when                                   | what it does |
/// |--------------------|---------------|----------------------------------------|---|
/// | point              | the call      | at once                                | |
/// | announce           | the carrier: the next launch in the same stream; else a launch behind the point, in a stream of the library's | as the stream comes to it | posted(o) = max(posted(o), k); opened = k |
/// | raise              | the service   | the point has passed, and some 50 us later no later point of the stream has; up to 500 us where none was late for long | posted(o) = max(posted(o), k) |
///
/// - The order of the two, and of raises of several posts, makes no difference: `posted` is what the greatest of them
///   wrote. `opened` is advanced by the carrier alone, in the order of posts.
/// - Not too early: before a raise the point has passed, so all that the stream had in front of the post has run.
/// - Not too late: a later point of the same stream is behind the carrier, which so has run when that point has passed.
///   Without one the service raises: at most once a post, and for nothing where the carrier has run. Each stream is
///   looked at for itself: what has passed in one waits for no other.
/// - k is known to the host as long as no graph has epochs of the window; with one, and within a capture, posts are
///   prompt.
/// - The call that carries may be in another stream, or in a capture, or the stream of the post may be gone. Then the
///   post is launched behind its point, and the calls of the program need not wait for it: only the window's next post
///   does.
/// - The end: when counters say that all has run there is nothing left to raise, and the window waits for raises that
///   are under way, which wait for nobody.
///
/// A post that has to be raised comes later than a prompt one, and costs the service a launch: posts gain by being free
/// where the next call comes soon, time after time. So each raise takes from the window's credit, posts that needed
/// none give some back, and without credit its posts are prompt for a while (MPIX_POST=free: they never are).
///
/// The calls come under the window's lock. They and the service share a ring for each stream: a call writes behind
/// `made`, the service takes from `gone` on, and neither waits for the other, which may be inside the driver.
class FreePosts final : public Poller {
 public:
  /// `always`: with credit or without.
  FreePosts(PostStreams& streams, StallHandler& stall, bool always);
  ~FreePosts() override { stop(); }

  /// The post is in `stream`, whose number is `stream_number`. Null: it has to go at once.
  std::shared_ptr<StreamPoint> add(Stream stream, std::uint64_t stream_number, const ExposurePlan& plan,
                                   const EnqueuedEpochs& enqueued);
  /// All posts have gone. False while the service still tells of one.
  bool settle();
  /// No post of the window goes ahead any more.
  void stop() noexcept;
  std::uint64_t raised() const { return raised_.load(std::memory_order_relaxed); }

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  struct Post {
    std::shared_ptr<StreamPoint> point;
    std::vector<PostRaise> raises;
  };
  /// The posts of a stream, but for those that are known to have gone: number n is in place n mod the size of `ring`, a
  /// power of two.
  struct Chain {
    std::uint64_t stream_number;
    std::vector<Post> ring;
    std::atomic<std::uint64_t> made{0};  ///< by the calls
    std::atomic<std::uint64_t> gone{0};  ///< by the holder of mutex_
    Clock::time_point passed_since{};    ///< the first: when the service saw that; guarded by mutex_

    Post& post(std::uint64_t number) { return ring[number & (ring.size() - 1)]; }
    bool is_empty() const { return gone.load(std::memory_order_relaxed) == made.load(); }
    void drop_to(std::uint64_t number);
    bool grow();
  };

  /// `late`: a post whose carrier had not come in time.
  enum class Seen : std::uint8_t { nothing, passed, late };

  bool has_credit();
  Chain& chain_of(std::uint64_t stream_number);
  static std::uint64_t last_passed(Chain& chain, std::uint64_t first, std::uint64_t end);
  Seen look_at(Chain& chain, Clock::time_point now);
  void drop_all() noexcept;

  PostStreams& streams_;
  StallHandler& stall_;
  const bool always_;
  bool begun_ = false;
  unsigned prompt_posts_ = 0;  ///< since there was no credit
  std::atomic<bool> ended_{false};
  std::atomic<bool> is_looking_{false};  ///< the service will look by itself
  std::atomic<std::uint64_t> raised_{0};
  std::atomic<int> credit_;
  std::mutex mutex_;         ///< guards what follows against the service, and what chains say
  std::list<Chain> chains_;  ///< the calls alone add to it
  Clock::duration nap_{};
  unsigned calm_looks_;      ///< in a row at which no post was late
  unsigned good_posts_ = 0;  ///< gone since one was late, or since they gave credit
};

}  // namespace mpix
