// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/awake_clock.h"
#include "net/operation_budget.h"
#include "net/staged_transfer.h"

namespace mpix {

/// That someone cannot be reached, and why.
inline std::string lost(const std::string& name, const std::string& why) {
  return name + " cannot be reached over the network: " + why;
}

/// Whom shipments go to, as the side that sends them knows it.
class Recipient {
 public:
  virtual ~Recipient() = default;
  virtual Connection connection() const = 0;
  virtual std::string name() const = 0;
  /// Empty, or why it gives no sign of life.
  virtual std::string probe() = 0;
  /// Whoever sends has given up.
  virtual bool is_broken() const = 0;
};

/// What the service has on its way to one rank: writes, and then a signal where there is one. Started when it is
/// queued.
///
/// Shared by its sender and the budget, until nothing of it is queued any more.
class Shipment final : public GrantHolder {
 public:
  struct Content {
    std::shared_ptr<Recipient> to;  ///< and what keeps the memory alive
    const char* what;               ///< "data", "post"
    std::uint64_t epoch;            ///< 0: of none
    std::vector<NetworkWrite> writes;
    std::optional<NetworkSignal> signal;

    Grant wanted() const { return {writes.size() + (signal ? 1 : 0), 1}; }
  };
  using Clock = AwakeClock;

  Shipment(OperationBudget& budget, const void* window, Content content, const Grant& grant)
      : budget_(budget), window_(window), content_(std::move(content)), free_(grant), born_(Clock::now()) {}

  struct Dispatched {
    std::shared_ptr<Shipment> shipment;  ///< null: not now
    bool admitted = false;               ///< by the budget; else it is the network that has no room
  };
  /// A shipment with a grant of the budget, as the turn comes, under way, and known to the budget.
  static Dispatched dispatch(OperationBudget& budget, const void* window, Content content, OperationBudget::Turn& turn);

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
  bool is_broken() const override { return content_.to->is_broken(); }
  void give_up() override;

 private:
  bool start_stage();         // under mutex_
  bool try_to_start_stage();  // likewise
  bool advance();             // under mutex_

  OperationBudget& budget_;
  const void* const window_;
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
