// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/post_streams.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "device/host/bell.h"

namespace mpix {
namespace {

/// What a task of a stream and the point that it stands for share.
class Passage {
 public:
  void pass() {
    std::lock_guard<std::mutex> hold(mutex_);
    passed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [&] { return passed(); });
  }
  bool passed() const { return passed_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> passed_{false};
};

template <void (Passage::*step)()>
void enqueue(Stream stream, const std::shared_ptr<Passage>& passage) {
  auto mine = std::make_unique<std::shared_ptr<Passage>>(passage);
  host_stream_launch(
      stream,
      [](void* p) {
        const std::unique_ptr<std::shared_ptr<Passage>> its(static_cast<std::shared_ptr<Passage>*>(p));
        ((**its).*step)();
      },
      mine.get());
  mine.release();
}

class HostPoint final : public StreamPoint {
 public:
  void set(Stream stream) override {
    auto passage = std::make_shared<Passage>();
    enqueue<&Passage::pass>(stream, passage);
    passage_ = std::move(passage);
  }
  bool passed() noexcept override { return !passage_ || passage_->passed(); }
  const std::shared_ptr<Passage>& passage() const { return passage_; }

 private:
  std::shared_ptr<Passage> passage_;
};

const std::shared_ptr<Passage>& passage_of(const std::shared_ptr<StreamPoint>& point) {
  return static_cast<const HostPoint&>(*point).passage();
}

}  // namespace

std::shared_ptr<StreamPoint> HostPostStreams::new_point() { return std::make_shared<HostPoint>(); }

void HostPostStreams::raise(const std::vector<PostRaise>& raises) {
  for (const PostRaise& raise : raises) {
    raise_after_loads(&raise.there->posted, raise.epochs);
    ring(raise.bell);
  }
}

std::shared_ptr<StreamPoint> HostPostStreams::launch_behind(const std::shared_ptr<StreamPoint>& point,
                                                            Launch&& launch) {
  std::lock_guard<std::mutex> hold(mutex_);
  auto aside = std::find_if(asides_.begin(), asides_.end(),
                            [](const Aside& known) { return !known.end || known.end->passed(); });
  if (aside == asides_.end()) aside = asides_.insert(aside, {create_host_stream(), nullptr});
  auto end = new_point();
  enqueue<&Passage::wait>(aside->stream, passage_of(point));
  host_stream_launch(aside->stream, std::move(launch));
  end->set(aside->stream);
  aside->end = end;
  return end;
}

void HostPostStreams::hold_back(Stream stream, bool, const std::shared_ptr<StreamPoint>& point) {
  enqueue<&Passage::wait>(stream, passage_of(point));
}

}  // namespace mpix
