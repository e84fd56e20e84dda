// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/stats.h"
#include "device/device.h"
#include "offnode/remote_plan.h"
#include "team/neighbourhood.h"
#include "team/put.h"

namespace mpix {

/// An array that kernels read, and its length.
template <class T>
struct DeviceArray {
  std::vector<T> on_host;
  std::shared_ptr<const void> memory;
  const T* data() const { return static_cast<const T*>(memory.get()); }
  std::uint32_t count() const { return static_cast<std::uint32_t>(on_host.size()); }
};

/// What the kernels of an exposure epoch need. Depends on its group alone. Immutable.
struct ExposurePlan {
  std::vector<int> origins;
  DeviceArray<PostPeer> posts;
  DeviceArray<ReceivePeer> receives;
  std::vector<RemotePeer*> remote;  ///< origins on other nodes, which the tables do not have

  static std::shared_ptr<const ExposurePlan> build(const std::vector<int>& origins, const Neighbourhood& peers,
                                                   RemotePeers& remote, Device& device);
};

/// A put that the device's copy engine carries: worth an operation of its own.
struct Copy {
  char* to;
  const char* from;
  std::uint64_t bytes;
};

/// What the kernels of an access epoch need: its targets and its operations, sorted by target, each with
/// its way into the target's window. Immutable.
struct AccessPlan {
  std::vector<int> targets;
  std::vector<std::uint64_t> credits;  ///< that the epoch needs of each target's, for its guard (wire/guard.h)
  std::vector<Put> puts;

  DeviceArray<PutOp> ops;
  DeviceArray<SendPeer> merged;  ///< one entry for each target; where there are copies: with those alone
  /// Where there are copies, what runs before them: an entry for each target, which waits for its post when it
  /// has copies, and is all that there is to do otherwise.
  DeviceArray<SendPeer> before_copies;
  std::vector<Copy> copies;
  DeviceArray<SendPeer> unmerged;  ///< one entry for each operation, and one that signals for each target
  std::vector<RemoteSend> remote;  ///< targets on other nodes, which the tables do not have
  DeviceArray<RelayedSend> relayed;
  std::vector<std::shared_ptr<const void>> outgoing;  ///< memory of ours that `ops` write into
  std::uint64_t most_bytes = 0;                       ///< to one target
  /// What a target has to move into its window, by rank. Halo exchanges are symmetric, as a rule: about so much
  /// will come from there.
  std::vector<std::uint64_t> bytes_to_move;
  Stats effect;  ///< what one run of it adds to the window's counters

  static std::shared_ptr<const AccessPlan> build(std::vector<int> targets, std::vector<Put> puts,
                                                 const Neighbourhood& peers, RemotePeers& remote, Device& device,
                                                 bool merge);
};

/// The last few plans of a window, the most recently used first.
template <class Plan>
class PlanCache {
 public:
  template <class Matches>
  std::shared_ptr<const Plan> find(Matches matches) {
    for (auto at = plans_.begin(); at != plans_.end(); ++at) {
      if (!matches(**at)) continue;
      if (at != plans_.begin()) plans_.splice(plans_.begin(), plans_, at);
      return plans_.front();
    }
    return nullptr;
  }

  void add(std::shared_ptr<const Plan> plan) {
    plans_.push_front(std::move(plan));
    if (plans_.size() > capacity) plans_.pop_back();
  }

 private:
  // Double buffering, and directions in turn, need a few; a list this short is cheap to search.
  static constexpr std::size_t capacity = 8;
  std::list<std::shared_ptr<const Plan>> plans_;
};

/// The puts of the open access epoch. While they repeat those of an earlier epoch, nothing is recorded: the
/// recorder only follows that epoch's plan.
class AccessRecorder {
 public:
  AccessRecorder(const Neighbourhood& peers, RemotePeers& remote, Device& device, bool merge)
      : peers_(peers), remote_(remote), device_(device), merge_(merge) {}

  void start(const std::vector<int>& targets);
  /// The epoch before was for these.
  bool had_last(const std::vector<int>& targets) const { return targets == targets_ && !is_target_.empty(); }
  /// Throws Error when the put breaks a rule; the epoch is then as before.
  void put(const Put& put);
  /// The plan of the epoch; `reused` tells whether it was there before.
  std::shared_ptr<const AccessPlan> finish(bool* reused);

 private:
  void check(const Put& put);
  bool follow_another(const Put& put);
  void stop_following();

  const Neighbourhood& peers_;
  RemotePeers& remote_;
  Device& device_;
  const bool merge_;
  PlanCache<AccessPlan> plans_;

  std::vector<int> targets_;
  std::vector<bool> is_target_;                 ///< by rank
  std::shared_ptr<const AccessPlan> followed_;  ///< the epoch so far equals its first `count_` puts
  std::size_t count_ = 0;
  std::vector<Put> recorded_;               ///< when nothing is followed
  std::vector<std::uint32_t> staged_puts_;  ///< by rank; counts recorded_
};

}  // namespace mpix
