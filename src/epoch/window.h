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
#include <vector>

#include "base/settings.h"
#include "base/stats.h"
#include "device/device.h"
#include "device/plans_in_flight.h"
#include "epoch/epoch_state.h"
#include "epoch/guards.h"
#include "epoch/plan.h"
#include "epoch/unmapping.h"
#include "epoch/wait_watch.h"
#include "offnode/relay.h"
#include "offnode/remote_epoch.h"
#include "team/bootstrap.h"
#include "team/neighbourhood.h"
#include "watch/blocked_call.h"
#include "watch/stall.h"

namespace mpix {

/// The stream-triggered side of one MPI window: what its epochs record, and what they enqueue.
///
/// Ranks are those of the window's group. Calls may come from several threads. A call that throws has
/// enqueued nothing and changed nothing. Nothing here waits for a stream or a peer, but the constructor
/// (collective), drain(), and calls that find the budget of the network used up, as throttling says.
class Window {
 public:
  /// Ranks of other nodes are reached over `budget`, or, where it is null, not, for the reason `why_not`.
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

  /// Likewise: no RMA call can belong to any epoch.
  bool lacks_access_epoch() const { return lacks_access_.load(std::memory_order_acquire); }

  /// Run `change` on the state of this window's epochs, alone: the ordinary epochs' checks and changes.
  template <class Change>
  void with_state(Change change) {
    std::lock_guard<std::mutex> hold(mutex_);
    change(state_);
    lacks_access_.store(state_.lacks_access(), std::memory_order_release);
  }

  /// For the time of an ordinary call of the access side, which may hang in MPI as the program forgot MPIX_MODE_STREAM.
  /// Null: there is nothing to watch.
  std::unique_ptr<BlockedCall> watch_ordinary(const char* call);

  /// Throws where an epoch is open. Those of a broken window are over.
  void check_free();
  /// Wait, asleep, until everything enqueued has run. False: a wait was released by its time-out.
  bool drain();

  /// The lock of its calls, if nothing that it has enqueued is still to run. `or_captured`: nor what graphs may have.
  std::unique_lock<std::mutex> held_if_idle(bool or_captured);

  Stats stats() const;
  std::string name() const;
  void rename(const std::string& name);

 private:
  void check_usable();
  void close_epochs_if_broken();
  bool is_broken() const;
  /// For the hang report of a wait, from any thread: whether it may wait for itself. Empty: no, or nobody can tell.
  std::string complete_behind_wait();
  EpochCounts run(int rank);
  void close_access();
  void close_exposure();
  void check_ranks(const std::vector<int>& ranks) const;
  void begin_network(const std::vector<int>& ranks);
  std::shared_ptr<const ExposurePlan> exposure_plan(const std::vector<int>& origins);
  void close_access(const std::shared_ptr<const AccessPlan>& plan, bool reused);
  bool is_alive(Stream stream) const;
  bool has_run();
  bool has_run_locked();
  bool has_all_posts();
  void await_posts();
  bool remote_has_run();
  bool relay_has_run();
  OperationBudget* budget() const;

  // Ranks of other nodes.
  using Lock = std::unique_lock<std::mutex>;
  /// Lets go of the window while it waits, and checks again what the call demands.
  OperationBudget::Lease admit(Lock& hold, const Grant& wanted, Call call, const std::function<void()>& check_again);
  void report_throttling(Call call, const Grant& wanted, double waited, double* reported);
  std::shared_ptr<RemoteOperations> queued(std::shared_ptr<RemoteOperations> operations, Call call,
                                           OperationBudget::Lease lease);
  std::shared_ptr<RemoteOperations> queue_posts(const std::shared_ptr<const ExposurePlan>& plan,
                                                OperationBudget::Lease lease);
  std::shared_ptr<RemoteOperations> queue_sends(const std::shared_ptr<const AccessPlan>& plan, Call call,
                                                OperationBudget::Lease lease);
  void add_remote(Launch& launch, const std::shared_ptr<RemoteOperations>& operations, std::size_t first,
                  std::size_t count);
  void add_remote_receives(Launch& launch, const ExposurePlan& plan, std::size_t first, std::size_t count);

  // What an epoch enqueues.
  /// The entries of one launch: of the tables for this node, and of the list of ranks on others.
  struct Part {
    std::uint32_t first, count;
    std::size_t first_remote, remote_count;
  };
  template <class Enqueue>
  void for_parts(std::uint32_t entries, std::size_t remote, Enqueue enqueue_part);
  Launch new_launch(Call call);
  void add_posts(Launch& launch, const std::shared_ptr<const ExposurePlan>& plan, std::uint32_t first,
                 std::uint32_t count);
  void add_sends(Launch& launch, const std::shared_ptr<const AccessPlan>& plan, const DeviceArray<SendPeer>& sends,
                 std::uint32_t first, std::uint32_t count);
  void add_receives(Launch& launch, const std::shared_ptr<const ExposurePlan>& plan, std::uint32_t first,
                    std::uint32_t count);
  void launch_post(const std::shared_ptr<const ExposurePlan>& plan, Stream stream, OperationBudget::Lease lease = {});
  void carry_held_post(Launch& launch, Stream stream);
  void check_stream(Stream stream);
  void keep_for_graph(Stream stream, std::shared_ptr<const void> plan);
  void enqueue(Launch& launch, Stream stream);
  void launch_copies(const std::shared_ptr<const AccessPlan>& plan, Stream stream);
  void launch_complete(const std::shared_ptr<const AccessPlan>& plan, Call call, Stream stream,
                       OperationBudget::Lease lease);
  void launch_wait(const std::shared_ptr<const ExposurePlan>& plan, Call call, Stream stream);

  mutable std::mutex mutex_;  ///< guards all below but what is const
  std::string name_;
  Device& device_;
  const Settings settings_;
  const UnmapsLater unmaps_later_;  ///< outlives peers_
  Neighbourhood peers_;
  const std::shared_ptr<RemotePeers> remote_;
  const std::shared_ptr<HostWords> host_words_;
  StallReporter stall_;

  EpochState state_;
  std::atomic<bool> recording_{false};     ///< state_.access() is stream
  std::atomic<bool> lacks_access_{false};  ///< state_.lacks_access()
  AccessRecorder recorder_;
  PlanCache<ExposurePlan> exposure_plans_;
  std::shared_ptr<const ExposurePlan> exposure_;  ///< of the open exposure epoch

  /// A post that has been called and not yet enqueued: the window's next launch carries it, which saves one of
  /// its own. Only where the program has promised (lazy_post) that no peer has to wait for that meanwhile.
  struct HeldPost {
    std::shared_ptr<const ExposurePlan> plan;  ///< null: none
    Stream stream = nullptr;
    std::uint64_t capture = 0;  ///< that the stream was in
  } held_post_;
  const bool lazy_post_;
  std::uint64_t launched_ = 0;
  /// By rank: where the counters will be when all has run but for graphs, which run as often as the program likes.
  std::vector<EpochCounts> enqueued_;
  Stream last_wait_ = nullptr, last_complete_ = nullptr;
  std::uint64_t capture_ = 0;  ///< that the stream of this call is in
  bool was_captured_ = false;
  bool network_begun_ = false;
  std::unique_ptr<Guards> guards_;                 ///< null: kernels wait
  std::unique_ptr<Relay> relay_;                   ///< null: nobody is relayed
  std::unique_ptr<WaitWatch> watch_;               ///< null: streams report by themselves, or nobody wants to know
  const std::uint64_t most_receive_bytes_;         ///< that one origin is likely to send by mailbox
  std::shared_ptr<const AccessPlan> last_access_;  ///< for what will come: plans are alike in both directions
  std::unique_ptr<LaunchMemory> launch_memory_;
  PlansInFlight in_flight_;
  Stats stats_;
  std::optional<std::chrono::steady_clock::time_point>
      draining_since_;  ///< nothing but the network is left to wait for
};

}  // namespace mpix
