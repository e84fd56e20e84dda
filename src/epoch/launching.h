// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "device/plans_in_flight.h"
#include "epoch/free_posts.h"
#include "epoch/guards.h"
#include "epoch/node_progress.h"
#include "epoch/plan.h"
#include "net/operation_budget.h"
#include "offnode/off_node.h"
#include "team/enqueued_epochs.h"
#include "team/neighbourhood.h"
#include "watch/stall.h"

namespace mpix {

/// A stream as a call found it.
struct StreamNow {
  Stream stream = nullptr;
  std::uint64_t capture = 0;  ///< that it is in; 0: none
};

/// What the calls of one window enqueue: the launches of an epoch, with what hangs on them for other nodes, guards in
/// front and copies beside. It counts what it has enqueued. Guarded by the window's lock.
///
/// A call that throws has enqueued nothing, but for the parts in front of the one that failed where launches are not
/// merged.
class Launching {
 public:
  using ExposurePlanOf = std::shared_ptr<const ExposurePlan>;
  using AccessPlanOf = std::shared_ptr<const AccessPlan>;

  /// `lazy_post`: the program has promised that no peer has to wait for a post until the next call on the window.
  Launching(Device& device, const Settings& settings, Neighbourhood& peers, OffNode& off_node, StallReporter& stall,
            std::shared_ptr<HostWords> words, EnqueuedEpochs& enqueued, bool lazy_post, std::uint64_t window_bytes);

  /// Throws Error where nothing of this window can be enqueued there now.
  StreamNow check(Stream stream) const;

  void post(const ExposurePlanOf& plan, const StreamNow& in, OperationBudget::Lease lease);
  void complete(const AccessPlanOf& plan, const StreamNow& in, OperationBudget::Lease lease);
  void wait(const ExposurePlanOf& plan, const StreamNow& in);
  void complete_wait(const AccessPlanOf& access, const ExposurePlanOf& exposure, const StreamNow& in,
                     OperationBudget::Lease lease);

  /// Left over only by an epoch that is empty, or broken.
  /// A lazy post in a capture that is over: no call can carry it any more.
  bool has_lost_post() const;
  void forget_carried_post() { to_carry_ = CarriedPost{}; }
  /// When all has run: whether no post is on a way of its own any more.
  bool posts_have_settled() { return !free_posts_ || free_posts_->settle(); }
  /// Before the window's memory goes.
  void end_posts() noexcept {
    if (free_posts_) free_posts_->stop();
  }
  std::uint64_t posts_raised() const { return free_posts_ ? free_posts_->raised() : 0; }
  /// Graphs may have epochs of the window.
  bool was_captured() const { return was_captured_; }
  const NodeProgress& progress() const { return progress_; }
  /// Null: kernels wait.
  Guards* guards() const { return guards_.get(); }

 private:
  /// A post that has been called and not yet enqueued: the window's next launch carries it, which saves one of its own.
  struct CarriedPost {
    ExposurePlanOf plan;  ///< null: none
    StreamNow in;
    std::shared_ptr<StreamPoint> point{};  ///< of a free post; null: it is lazy
    std::uint64_t stream_number = 0;       ///< of a free post
  };
  /// The entries of one launch: of the tables for this node, and of the list of ranks on others.
  struct Batch {
    std::uint32_t first, count;
    std::size_t first_remote, remote_count;
  };

  template <class Enqueue>
  void for_batches(std::uint32_t entries, std::size_t remote, Enqueue enqueue_batch);
  Launch new_launch(Call call, const StreamNow& in);
  void add_posts(Launch& launch, const ExposurePlanOf& plan, std::uint32_t first, std::uint32_t count);
  void add_sends(Launch& launch, const AccessPlanOf& plan, const DeviceArray<SendPeer>& sends, std::uint32_t first,
                 std::uint32_t count);
  void add_receives(Launch& launch, const ExposurePlanOf& plan, std::uint32_t first, std::uint32_t count);
  void launch_post(const ExposurePlanOf& plan, const StreamNow& in, OperationBudget::Lease lease);
  void launch_copies(const AccessPlanOf& plan, const StreamNow& in);
  void launch_complete(const AccessPlanOf& plan, const ExposurePlan* exposure, Call call, const StreamNow& in,
                       OperationBudget::Lease lease);
  void launch_wait(const ExposurePlanOf& plan, Call call, const StreamNow& in);
  void launch_fused(const AccessPlanOf& access, const ExposurePlanOf& exposure, const StreamNow& in,
                    OperationBudget::Lease lease);
  bool may_be_free(const ExposurePlan& plan, const StreamNow& in) const;
  bool set_free_post(const ExposurePlanOf& plan, const StreamNow& in);
  void keep_behind_posts(const StreamNow& in);
  void carry_post(Launch& launch, const StreamNow& in);
  void launch_carried_post(const StreamNow& in);
  void launch_aside();
  bool is_alive(Stream stream) const;
  void enqueue(Launch& launch, const StreamNow& in);
  template <class Enqueue>
  void keep_and(Launch& launch, Enqueue enqueue_it);
  void opened(const ExposurePlanOf& plan, const StreamNow& in);
  void sent(const AccessPlanOf& plan, const StreamNow& in);
  void closed(const ExposurePlanOf& plan, const StreamNow& in);
  void keep_for_graph(const StreamNow& in, std::shared_ptr<const void> plan);

  Device& device_;
  const bool merge_, lazy_post_;
  Neighbourhood& peers_;
  OffNode& off_node_;
  StallReporter& stall_;
  const std::shared_ptr<HostWords> words_;
  EnqueuedEpochs& enqueued_;
  NodeProgress progress_;
  std::unique_ptr<Guards> guards_;
  std::unique_ptr<LaunchMemory> memory_;
  const std::uint64_t most_receive_bytes_;  ///< that one origin is likely to send by mailbox
  AccessPlanOf last_access_;                ///< for what will come: plans are alike in both directions
  std::unique_ptr<FreePosts> free_posts_;   ///< null: posts are prompt or lazy
  CarriedPost to_carry_;
  std::shared_ptr<StreamPoint> last_aside_;  ///< behind the last post that was launched behind its point
  bool was_captured_ = false;
  PlansInFlight in_flight_;
};

}  // namespace mpix
