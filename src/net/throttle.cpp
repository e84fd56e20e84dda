// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/throttle.h"

#include <string>

#include "base/error.h"

namespace mpix {
namespace {

/// The program sees to it that there is room, by synchronizing often enough; the library never waits.
class Application final : public ThrottlePolicy {
 public:
  const char* name() const override { return "application"; }
  bool refuses() const override { return true; }
  bool admits(const Demand& demand) const override {
    if (demand.wanted <= demand.free) return true;
    throw Error(
        Fault::memory,
        "the epoch needs " + std::to_string(demand.wanted) + " triggered operations, and " +
            std::to_string(demand.free) + " of the budget of " + std::to_string(demand.total) + " are free: " +
            (demand.wanted > demand.total ? "MPIX_TRIGGERED_OPS has to be larger, or the epoch smaller"
                                          : "synchronize the stream more often (MPIX_THROTTLE=application never waits; "
                                            "MPIX_TRIGGERED_OPS is the budget)"));
  }
};

/// An epoch that found no room begins when the data of all of the window's earlier ones have gone.
class Static final : public ThrottlePolicy {
 public:
  const char* name() const override { return "static"; }
  bool looks_at_window() const override { return true; }
  bool admits(const Demand& demand) const override {
    return demand.needed() <= demand.free && (!demand.refused || demand.of_window == 0);
  }
};

/// An epoch begins when there is room for it.
class Adaptive final : public ThrottlePolicy {
 public:
  explicit Adaptive(bool cores_to_spare) : worth_waking_(cores_to_spare ? 5 : 6) {}
  const char* name() const override { return "adaptive"; }
  bool admits(const Demand& demand) const override { return demand.needed() <= demand.free; }
  /// Streams have the rest to go on with, and who is let in a little later has not to sleep again at the next call.
  /// Without cores to spare who wakes takes that of a stream, so that happens less often.
  bool worth_waking(const Demand& demand) const override {
    return admits(demand) && 8 * demand.free >= worth_waking_ * demand.total;
  }

 private:
  const std::size_t worth_waking_;  ///< eighths of the budget
};

}  // namespace

std::unique_ptr<ThrottlePolicy> make_throttle_policy(Throttle throttle, bool cores_to_spare) {
  switch (throttle) {
    case Throttle::application:
      return std::make_unique<Application>();
    case Throttle::fixed:
      return std::make_unique<Static>();
    case Throttle::adaptive:
      break;
  }
  return std::make_unique<Adaptive>(cores_to_spare);
}

}  // namespace mpix
