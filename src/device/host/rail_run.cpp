// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/rail_run.h"

#include <cstring>
#include <exception>
#include <vector>

#include "base/log.h"
#include "wire/rail_steps.h"

namespace mpix {
namespace {

/// The crew of a host stream (wire/rail_steps.h).
struct RailAlone {
  const RailLaunch& launch;
  const Polling& polling;

  Workers workers() const { return Workers{0, 1}; }
  bool agree(bool yes) const { return yes; }
  bool leads() const { return true; }

  bool await(const RailStep& step, std::uint64_t number) const {
    const std::uint64_t* const arrived = &step.places.words->arrived;
    Bell bell{};  // nobody rings it
    Patience patience(&bell, polling, true);
    bool good = true;
    while (good && load_acquire(arrived) < number) {
      if (!launch.service->serve()) patience.pause();
      good = load_relaxed(&step.host->released) == 0;
    }
    launch.service->leave();
    return good;
  }

  /// By a function that knows the type: of whole operands, one after another.
  template <class Operand>
  bool combine_by_function(const RailStep& step, std::uint32_t count, Operand operand) const {
    const std::size_t words = (step.bytes + 7) / 8;
    std::vector<std::uint64_t> result(words), next(words);
    std::memcpy(result.data(), operand(0), step.bytes);
    for (std::uint32_t i = 1; i < count; ++i) {
      std::memcpy(next.data(), operand(i), step.bytes);
      step.function(step.context, result.data(), next.data(), step.bytes);
      result.swap(next);
    }
    std::memcpy(step.taking.to, result.data(), step.bytes);
    return true;
  }
};

}  // namespace

bool run_on_host(const RailLaunch& launch, const Polling& polling) {
  if (load_relaxed(&launch.step.host->released) != 0) return false;
  try {
    const RailAlone crew{launch, polling};
    return RailSteps<RailAlone>(crew, launch.step).run();
  } catch (const std::exception& error) {  // nobody to throw to
    log(LogLevel::error, std::string("a collective call in a stream failed: ") + error.what());
    store_release(&launch.step.host->released, 1);
    return false;
  }
}

}  // namespace mpix
