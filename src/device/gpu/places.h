// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "device/device.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// Room on a GPU for blocks that wait for peers. A block that waits keeps its place. Were all places taken by blocks
/// that wait, what ends their waits (a post, a send, the program's own kernel in front of it) might find none, and
/// never run.
///
/// | who may hold places                          | how many                                  | for how long             |
/// |----------------------------------------------|-------------------------------------------|--------------------------|
/// | part 0 of each peer of a launch that waits   | what the window has taken here: together less than a process has multiprocessors, by those that share the GPU, and than what other parts have of that | any time |
/// | the other parts of a launch that waits, where the window has found places for them | together: what the GPU has room for, but for a block a multiprocessor; and up to a half of these, while parts 0 do not take them | any time |
/// | those where it has not found them            | the launch's blocks: at most half of what the GPU has room for, and 128 | some ms: then they leave, and part 0 does their work (wire/program.h) |
/// | a launch that started early (arguments.h)    | the same                                  | as the one in front. One whose parts may have to leave starts early only behind one that does not wait any more |
/// | a launch behind guards, and posts            | likewise                                  | it waits for nothing     |
/// | all blocks of a collective call              | what the communicator has taken, of the places for other parts | any time |
///
/// So one multiprocessor at least has no block on it that waits for long, whatever windows, streams and graphs there
/// are: whatever the program or a window launches finds room there, and all waits end that can.
///
/// - Of places for the other parts a window leaves as many for others as it takes. Eager data do with a quarter of the
///   parts, of four words a thread, and take the last places for these: 128 KiB, fused and captured, take 3.4 µs with
///   8 or 16 parts, 3.7 with 32, and 4.8 with 32 that may have to leave (H200, 2 ranks under MPS). So they
///   begin with no more than 16 parts of all peers together, where each thread has words enough: else the fourth of six
///   windows of three neighbours found too few (4 H100, 32 KiB, captured: the sixth took 7.4 µs for 5.5).
/// - A window takes places for one peer at its creation, and more with the first launch that has more peers. One
///   launch of a side may wait, and the next have started early: twice as many. A launch that finds too few goes in
///   several, one behind the other, each with as many peers as the window has places for. It gives none back before it
///   ends: a graph may have the launch. A graph that outlives its window finds waits that end by themselves.
/// - A window that finds no places at its creation waits in guards (wire/guard.h), which take none: all of its ranks
///   on the node do. Where there are no guards (between nodes, on a GPU or driver without memory operations of streams,
///   and where the program asks for waits in kernels) it takes places that are not there, and the promise does not
///   hold.
///
/// Calls on several communicators may wait at once, on each rank for others: each has to find room beside all those.
/// - A place is a half of a multiprocessor. Where ranks share the GPU a block of a call has 256 threads at most, and
///   takes one, whatever registers it has. Else it may have 512, and takes two; there one of a window may lie on each
///   multiprocessor, with nothing beside it that has room for 512 threads. So that calls and windows of many peers that
///   wait at once all find room is only likely where a rank has the GPU for itself.
/// - A communicator takes its places when it is made, as many on all ranks, for the parts of a call match each other.
///   Each takes two thirds of what is left: 64, 16, 8 blocks (132 multiprocessors), and 32, 8, 6 where 4 ranks share
///   the GPU. One that finds none waits in guards, as windows do.
/// - In graphs the next call starts early, and has places beside the one in front. Where both would not fit into those
///   of the communicator it starts when the one in front has all that it waits for, and ends.
class Places {
 public:
  /// Once, when the GPU is known.
  void open(std::uint32_t multiprocessors, std::uint32_t blocks) {
    all_ = multiprocessors;
    blocks_ = blocks > multiprocessors ? blocks - multiprocessors : 0;
  }
  std::uint32_t all() const { return all_; }

  /// With what is lent to other parts.
  std::uint32_t taken() {
    std::lock_guard<std::mutex> hold(mutex_);
    return taken_ + lent(blocks_taken_);
  }
  void share(std::uint32_t sharers) {
    std::lock_guard<std::mutex> hold(mutex_);
    sharers_ = std::max(sharers_, sharers);
  }
  void take(std::uint32_t count) {
    std::lock_guard<std::mutex> hold(mutex_);
    taken_ += count;
  }
  bool try_to_take(std::uint32_t count) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (taken_ + lent(blocks_taken_) + count > WaitingRoom::most(all_, sharers_)) return false;
    taken_ += count;
    return true;
  }
  void give_back(std::uint32_t count) {
    std::lock_guard<std::mutex> hold(mutex_);
    taken_ -= count;
  }
  /// `modest`: only where as many are left for others.
  bool try_to_take_blocks(std::uint32_t count, bool modest) {
    std::lock_guard<std::mutex> hold(mutex_);
    if ((blocks_taken_ + (modest ? 2 : 1) * count) * sharers_ > blocks_ + all_ / 2) return false;
    const std::uint32_t would_lend = lent(blocks_taken_ + count);
    if (would_lend > 0 && taken_ + would_lend > WaitingRoom::most(all_, sharers_)) return false;
    blocks_taken_ += count;
    return true;
  }
  void give_blocks_back(std::uint32_t count) {
    std::lock_guard<std::mutex> hold(mutex_);
    blocks_taken_ -= count;
  }

  struct Reserved {
    RoomUse before;
    std::uint32_t count;
  };
  /// For a communicator, until its ranks have agreed: all that they may agree upon, and so rounded up, for a last block
  /// of two places. Another thread may make one, too.
  Reserved reserve_blocks() {
    std::lock_guard<std::mutex> hold(mutex_);
    const RoomUse use{all_, blocks_, sharers_, taken_, blocks_taken_};
    const std::uint32_t count = (use.blocks_left(sharers_) * 2 + 2) / 3;
    blocks_taken_ += count;
    return {use, count};
  }
  void change_blocks(std::uint32_t from, std::uint32_t to) {
    std::lock_guard<std::mutex> hold(mutex_);
    blocks_taken_ = blocks_taken_ - from + to;
  }

 private:
  /// Of the places for parts 0, where other parts have so many.
  std::uint32_t lent(std::uint32_t blocks_taken) const {
    const std::uint32_t own = blocks_ / sharers_;
    return blocks_taken > own ? blocks_taken - own : 0;
  }

  std::uint32_t all_ = 0, blocks_ = 0;
  std::mutex mutex_;
  std::uint32_t taken_ = 0, blocks_taken_ = 0, sharers_ = 1;
};

/// The places of one window.
class WindowPlaces final : public WaitingRoom {
 public:
  explicit WindowPlaces(std::shared_ptr<Places> all) : all_(std::move(all)) { all_->take(count_); }
  ~WindowPlaces() override {
    all_->give_back(count_);
    all_->give_blocks_back(send_blocks_ + receive_blocks_);
  }
  WindowPlaces(const WindowPlaces&) = delete;
  WindowPlaces& operator=(const WindowPlaces&) = delete;

  std::uint32_t all() const override { return all_->all(); }
  std::uint32_t taken() const override { return all_->taken(); }
  void share(std::uint32_t sharers) override { all_->share(sharers); }

  /// How many peers a launch of this window may have to send to, and to receive from, if it likes to have so many.
  /// Under the window's lock.
  std::uint32_t peers_for(std::uint32_t sends, std::uint32_t receives) {
    if (sends <= sends_ && receives <= receives_) return std::max(sends, receives);
    const std::uint32_t most_sends = std::max(sends, sends_), most_receives = std::max(receives, receives_);
    const std::uint32_t more = at_once * (most_sends + most_receives) - count_;
    if (!all_->try_to_take(more)) return std::min(sends_, receives_);
    count_ += more;
    sends_ = most_sends;
    receives_ = most_receives;
    return std::max(sends, receives);
  }

  /// Whether a launch with so many blocks of each role may keep them while it waits. Under the window's lock.
  bool blocks_for(std::uint32_t sends, std::uint32_t receives, bool modest) {
    if (sends <= send_blocks_ && receives <= receive_blocks_) return true;
    const std::uint32_t most_sends = std::max(sends, send_blocks_), most_receives = std::max(receives, receive_blocks_);
    if (!all_->try_to_take_blocks(most_sends + most_receives - send_blocks_ - receive_blocks_, modest)) return false;
    send_blocks_ = most_sends;
    receive_blocks_ = most_receives;
    return true;
  }

 private:
  static constexpr std::uint32_t at_once =
      2;  ///< launches of a side that may be there: one waits, the next has started early
  const std::shared_ptr<Places> all_;
  std::uint32_t sends_ = 1, receives_ = 1;  ///< peers that there are places for
  std::uint32_t count_ = at_once * 2;
  std::uint32_t send_blocks_ = 0, receive_blocks_ = 0;
};

/// The places of one communicator.
class CallPlaces final : public CallRoom {
 public:
  explicit CallPlaces(std::shared_ptr<Places> all) : all_(std::move(all)), reserved_(all_->reserve_blocks()) {}
  ~CallPlaces() override { all_->give_blocks_back(count_); }
  CallPlaces(const CallPlaces&) = delete;
  CallPlaces& operator=(const CallPlaces&) = delete;

  RoomUse use() const override { return reserved_.before; }
  void settle(std::uint32_t places, std::uint32_t sharers) override {
    all_->share(sharers);
    all_->change_blocks(count_, places);
    count_ = places;
  }
  Neighbours neighbours(std::uint64_t capture, std::uint32_t places) override {
    // What is in front in a capture that was left meanwhile is not known any more. A new one has a greater number.
    if (capture != capture_) in_front_ = capture > newest_capture_ ? 0 : count_;
    capture_ = capture;
    newest_capture_ = std::max(newest_capture_, capture);
    const bool starts_early = in_front_ + places <= count_, lets_next_start = 2 * places <= count_;
    in_front_ = lets_next_start ? places : 0;
    return {starts_early, lets_next_start};
  }

 private:
  const std::shared_ptr<Places> all_;
  const Places::Reserved reserved_;
  std::uint32_t count_ = reserved_.count, in_front_ = 0;
  std::uint64_t capture_ = 0, newest_capture_ = 0;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
