// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/operation_budget.h"
#include "offnode/relay_peers.h"
#include "offnode/staged_transfer.h"

namespace mpix {

/// What the relay has on its way to one rank: writes, and then a signal where there is one. Started when it is queued.
///
/// Shared by the relay and the budget, until nothing of it is queued any more.
class Shipment final : public GrantHolder {
 public:
  struct Content {
    const RelayPeer* peer;
    const char* what;  ///< "data", "post"
    std::uint64_t epoch;
    std::vector<NetworkWrite> writes;
    std::optional<NetworkSignal> signal;

    Grant wanted() const { return {writes.size() + (signal ? 1 : 0), 1}; }
  };
  using Clock = std::chrono::steady_clock;

  Shipment(std::shared_ptr<RelayPeers> peers, const void* window, std::shared_ptr<const HostWords> words,
           Content content, const Grant& grant)
      : peers_(std::move(peers)),
        window_(window),
        words_(std::move(words)),
        content_(std::move(content)),
        free_(grant),
        born_(Clock::now()) {}

  /// Once. False: the network has no room for it now.
  bool start();
  /// Whether it is there, and the network needs nothing of ours for it any more. Queues the next stage.
  bool is_over();
  Clock::time_point born() const { return born_; }

  const void* window() const override { return window_; }
  Grant reclaim() override;
  Grant held() const override;
  std::size_t with_data() const override { return content_.writes.empty() ? 0 : held().operations; }
  std::string failure() override;
  std::string probe() override;
  std::string missing() const override;
  bool moved() override;
  bool is_broken() const override { return __atomic_load_n(&words_->released, __ATOMIC_ACQUIRE) != 0; }
  void give_up() override;

 private:
  bool start_stage();         // under mutex_
  bool try_to_start_stage();  // likewise
  bool advance();             // under mutex_

  const std::shared_ptr<RelayPeers> peers_;  ///< the memory
  const void* const window_;
  const std::shared_ptr<const HostWords> words_;
  const Content content_;
  mutable std::mutex mutex_;  ///< guards what follows
  bool over_ = false;
  bool moved_ = false;
  bool given_up_ = false;  ///< no stage follows
  StagedTransfer transfer_;
  Grant free_;  ///< of what is held: not in the stage at hand
  const Clock::time_point born_;
};

}  // namespace mpix
