// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/awake_clock.h"
#include "base/settings.h"
#include "base/stats.h"
#include "device/device.h"
#include "net/operation_budget.h"
#include "offnode/relay.h"
#include "offnode/remote_epoch.h"
#include "offnode/remote_peers.h"
#include "offnode/remote_plan.h"
#include "team/enqueued_epochs.h"
#include "team/neighbourhood.h"
#include "watch/stall.h"

namespace mpix {

/// What calls on a window do about ranks of other nodes: ask for a part of the network's budget, queue, and hang the
/// rest on their launches. Host streams serve what hangs there; for kernels a relay does. Guarded by the window's lock.
class OffNode {
 public:
  /// Ranks of other nodes are reached over `budget`, or, where it is null, not, for the reason `why_not`. `window`: the
  /// name by which the budget knows the window.
  OffNode(const LocalMemory& memory, Device& device, const Settings& settings, OperationBudget* budget,
          std::string why_not, Neighbourhood& neighbours, const EnqueuedEpochs& enqueued, const void* window,
          StallReporter& stall, std::shared_ptr<HostWords> words);
  OffNode(const OffNode&) = delete;
  OffNode& operator=(const OffNode&) = delete;

  /// While the window is made: what this rank tells the others, and then what they told.
  WindowCard offer(const LocalMemory& memory);
  void connect(const std::vector<WindowCard>& cards);

  /// Why this rank of another node cannot be reached; empty: it can.
  std::string trouble(int rank) const;
  /// Before the first epochs with these ranks, of whatever node: memory for those of other nodes, and what a program
  /// without such epochs does not need. Throws Error, and may be tried again.
  void name_origins(const std::vector<int>& origins);
  void name_targets(const std::vector<int>& targets);
  bool has_begun() const { return has_begun_; }
  /// Of host streams: null for ranks of this node.
  const RemotePeer* find(int rank) const { return remote_->find(rank); }
  RemotePeers& peers() { return *remote_; }

  using Lock = std::unique_lock<std::mutex>;
  /// Lets go of the window while it waits, and checks again what the call demands (by std::cref: a copy would take
  /// memory in each call).
  OperationBudget::Lease admit(Lock& hold, const Grant& wanted, Call call, const std::function<void()>& check_again,
                               Stats& stats);
  /// What the posts for these ask of the budget.
  Grant grant_for_posts(const std::vector<RemotePeer*>& origins) const;
  /// Null where there are none. `keep`: what the sends are part of.
  std::shared_ptr<RemoteOperations> queue_posts(const std::vector<RemotePeer*>& origins, OperationBudget::Lease lease);
  std::shared_ptr<RemoteOperations> queue_sends(const std::vector<RemoteSend>& sends, std::shared_ptr<const void> keep,
                                                Call call, OperationBudget::Lease lease);
  /// Takes them back unless launches serve them all.
  OperationBudget::Unserved unserved(const std::shared_ptr<RemoteOperations>& operations) {
    return {budget(), operations};
  }
  void add_operations(Launch& launch, const std::shared_ptr<RemoteOperations>& operations, std::size_t first,
                      std::size_t count);
  void add_receives(Launch& launch, const std::vector<RemotePeer*>& origins, std::size_t first, std::size_t count);

  bool is_relayed() const { return relay_ != nullptr; }
  /// Something has been enqueued.
  void wake() {
    if (relay_) relay_->wake();
  }
  std::shared_ptr<const void> relayed_memory() const { return relay_ ? relay_->memory() : nullptr; }

  /// Whether nothing is left of the epochs that are enqueued, in the streams and in the network. Breaks the window
  /// where that will never be.
  bool has_run();
  /// As Window::say_farewell(), of MPI_Finalize, to ranks that may wait for this one. Throws Error.
  void say_finalize();
  /// By any thread.
  Farewell farewell_of(int rank) const noexcept { return doorsteps().farewell_of(rank); }
  /// Fills in what `stats`, which are the window's, do not know.
  void add_to(Stats& stats) const;

  /// The window is fully made, or is not; and it ends.
  void enter();
  void abandon();
  void end();
  /// Graphs may hold its epochs: what is launched of them later finds nothing to do.
  void retire();

 private:
  OperationBudget* budget() const;
  const Doorsteps& doorsteps() const { return relayed_ ? relayed_->doorsteps() : remote_->doorsteps(); }
  void begin();
  void begin_with(const std::vector<int>& ranks);
  std::shared_ptr<RemoteOperations> queued(std::shared_ptr<RemoteOperations> operations, Call call,
                                           OperationBudget::Lease lease);
  void report_throttling(Call call, const Grant& wanted, double waited, double* reported);
  bool is_broken() const { return __atomic_load_n(&words_->released, __ATOMIC_ACQUIRE) != 0; }
  bool remote_has_run();
  bool relay_has_run();

  const void* const window_;
  Neighbourhood& neighbours_;
  const EnqueuedEpochs& enqueued_;
  StallReporter& stall_;
  const std::shared_ptr<HostWords> words_;
  const std::shared_ptr<RemotePeers> remote_;
  std::shared_ptr<RelayPeers> relayed_;  ///< null: the streams serve them
  std::unique_ptr<Relay> relay_;         ///< null: nobody is relayed, or can be
  bool has_begun_ = false;
  std::optional<AwakeClock::time_point> draining_since_;  ///< nothing but the network is left to wait for
};

}  // namespace mpix
