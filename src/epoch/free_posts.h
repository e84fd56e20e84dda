// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/service.h"
#include "device/device.h"
#include "epoch/plan.h"
#include "team/enqueued_epochs.h"

namespace mpix {

/// Free posts of one window (MPIX_POST=free): the call enqueues no launch. It sets a point in its stream, and the
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
class FreePosts final : public Poller {
 public:
  FreePosts(PostStreams& streams, StallHandler& stall) : streams_(streams), stall_(stall) {}
  ~FreePosts() override { stop(); }

  /// The post is in `stream`. Null: it has to go at once.
  std::shared_ptr<StreamPoint> add(Stream stream, const ExposurePlan& plan, const EnqueuedEpochs& enqueued);
  /// All posts have gone. False while the service still tells of one.
  bool settle();
  /// No post of the window goes ahead any more.
  void stop() noexcept;
  std::uint64_t raised() const;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  struct Post {
    std::shared_ptr<StreamPoint> point;
    std::vector<PostRaise> raises;
    Clock::time_point passed_since{};
  };
  /// The posts of a stream, but for those that are known to have gone.
  struct Chain {
    Stream stream;
    std::deque<Post> posts;
  };

  /// `late`: a post whose carrier had not come in time.
  enum class Seen : std::uint8_t { nothing, passed, late };

  void drop_first(Chain& chain);
  static std::size_t count_before_last_passed(const Chain& chain);
  Seen look_at(Chain& chain, Clock::time_point now);

  PostStreams& streams_;
  StallHandler& stall_;
  mutable std::mutex mutex_;  ///< guards all below
  std::list<Chain> chains_;
  std::vector<Post> spare_;
  bool begun_ = false, ended_ = false;
  bool is_looking_ = false;  ///< the service will look by itself, and
  Clock::duration nap_{};    ///< after so long
  unsigned calm_looks_ = 0;  ///< in a row at which no post was late
  std::uint64_t raised_ = 0;
};

}  // namespace mpix
