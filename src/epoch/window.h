// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/stats.h"
#include "device/device.h"
#include "device/unmapping.h"
#include "epoch/epoch_state.h"
#include "epoch/launching.h"
#include "epoch/plan.h"
#include "epoch/wait_watch.h"
#include "offnode/off_node.h"
#include "team/bootstrap.h"
#include "team/enqueued_epochs.h"
#include "team/neighbourhood.h"
#include "watch/blocked_call.h"
#include "watch/stall.h"

namespace mpix {

/// The stream-triggered side of one MPI window: what its epochs record, and what they enqueue.
///
/// Ranks are those of the window's group. Calls may come from several threads. A call that throws has
/// enqueued nothing and changed nothing. Nothing here waits for a stream or a peer, but the constructor
/// (collective), drain(), and calls that find the budget of the network used up, as throttling says.
class Window final : public WaitsForPeers {
 public:
  /// Ranks of other nodes are reached over `budget`, or, where it is null, not, for the reason `why_not`. The team was
  /// made with the same settings and network.
  Window(std::string name, const LocalMemory& memory, std::shared_ptr<const Team> team, Bootstrap& bootstrap,
         Device& device, const Settings& settings, OperationBudget* budget = nullptr, std::string why_not = "");
  /// With a team of its own.
  Window(std::string name, const LocalMemory& memory, Bootstrap& bootstrap, Device& device, const Settings& settings,
         OperationBudget* budget = nullptr, std::string why_not = "");
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Stream epochs.
  void post_stream(const std::vector<int>& origins, Stream stream);
  void start_stream(const std::vector<int>& targets);
  void put(const Put& put);
  void complete_stream(Stream stream);
  void wait_stream(Stream stream);
  void complete_wait_stream(Stream stream);
  /// Cheap: asked by every RMA call of the program.
  bool in_stream_access_epoch() const { return recording_.load(std::memory_order_acquire); }

  /// Likewise: no RMA call can belong to any epoch that was opened through libmpix.
  bool lacks_access_epoch() const { return lacks_access_.load(std::memory_order_acquire); }
  bool has_stream_epochs() const { return has_stream_epochs_.load(std::memory_order_acquire); }

  /// Before an ordinary call. Throws where `check` does, and where it opens an epoch and the window is broken. Whether
  /// the call, which `waits` for peers on that side, may hang in MPI as the program forgot a stream call: then
  /// watch_ordinary() until end_watch().
  template <class Check>
  bool check_ordinary(bool opens_epoch, std::optional<Ordinary> waits, Check check) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (opens_epoch) check_usable();
    check(std::as_const(state_));
    return waits && (*waits == Ordinary::access ? state_.has_stream_epochs() : state_.last_access_was_stream());
  }
  void watch_ordinary(const char* call, Ordinary side);
  /// Likewise: a peer that waits for a stream epoch by an ordinary call may have none itself, and so say nothing.
  void watch_free();
  /// Of this thread.
  void end_watch() noexcept { blocked_calls_.end(); }

  /// After an ordinary call: what it has opened or closed.
  template <class Change>
  void note_ordinary(Change change) {
    std::lock_guard<std::mutex> hold(mutex_);
    change(state_);
    note_state();
  }

  /// Throws where the window is broken.
  void check_unbroken() {
    std::lock_guard<std::mutex> hold(mutex_);
    check_usable();
  }
  /// Throws where an epoch is open. Those of a broken window are over.
  void check_free();
  /// The program ends this rank's part in the window: the reports of peers that wait for it say so.
  void say_farewell(Farewell farewell) noexcept;
  /// Epochs have named ranks there.
  bool reaches_other_nodes() const { return off_node_.has_begun(); }
  /// Wait, asleep, until everything enqueued has run. False: a wait was released by its time-out.
  bool drain(const std::function<void()>& meanwhile = nullptr);

  std::unique_lock<std::mutex> held_if_idle(bool or_unseen) override;

  Stats stats() const;
  std::string name() const;
  void rename(const std::string& name);

 private:
  /// For calls that ask without the lock.
  void note_state() {
    recording_.store(state_.access() == EpochState::Side::stream, std::memory_order_release);
    lacks_access_.store(state_.lacks_access(), std::memory_order_release);
    has_stream_epochs_.store(state_.has_stream_epochs(), std::memory_order_release);
  }
  void check_usable();
  void close_epochs_if_broken();
  bool is_broken() const;
  /// For the hang report of a wait, from any thread: whether it may wait for itself. Empty: no, or nobody can tell.
  std::string complete_behind_wait();
  void close_access();
  void close_exposure();
  void check_ranks(const std::vector<int>& ranks) const;
  std::shared_ptr<const ExposurePlan> exposure_plan(const std::vector<int>& origins);
  void close_access(const AccessPlan& plan, bool reused);
  bool has_run();
  void log_ways() const noexcept;

  using Lock = std::unique_lock<std::mutex>;

  mutable std::mutex mutex_;  ///< guards all below but what is const
  std::string name_;
  Device& device_;
  const Settings settings_;
  const UnmapsLater unmaps_later_;  ///< outlives peers_
  Neighbourhood peers_;
  const std::shared_ptr<HostWords> host_words_;
  StallReporter stall_;
  BlockedCalls blocked_calls_;
  EnqueuedEpochs enqueued_;
  OffNode off_node_;

  EpochState state_;
  std::atomic<bool> recording_{false};    ///< state_.access() is stream
  std::atomic<bool> lacks_access_{true};  ///< state_.lacks_access(), and so on
  std::atomic<bool> has_stream_epochs_{false};
  AccessRecorder recorder_;
  PlanCache<ExposurePlan> exposure_plans_;
  std::shared_ptr<const ExposurePlan> exposure_;  ///< of the open exposure epoch
  Launching launching_;
  std::unique_ptr<WaitWatch> watch_;  ///< null: streams report by themselves, or nobody wants to know
  Stream last_wait_ = nullptr, last_complete_ = nullptr;
  Stats stats_;
  std::optional<AskedBeforeUnmapping> asked_;
};

}  // namespace mpix
