// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"
#include "device/device.h"
#include "wire/missing_ranks.h"
#include "wire/wait_note.h"

namespace mpix {

/// The hang report of one window, and what follows it.
class StallReporter final : public StallHandler {
 public:
  using Suspicion = std::function<std::string(Call)>;
  using FarewellOf = std::function<Farewell(int rank)>;
  /// `advice`: what else to say, once a process. `suspicion`: what this rank itself may have done wrong for a wait not
  /// to end, or nothing; `farewell_of`: what another rank has called that ends its part. Both are asked by any thread.
  StallReporter(const std::string& window, HostWords* words, double seconds, bool fail, std::string advice = "",
                Suspicion suspicion = nullptr, FarewellOf farewell_of = nullptr)
      : window_(window),
        words_(words),
        advice_(std::move(advice)),
        suspicion_(std::move(suspicion)),
        farewell_of_(std::move(farewell_of)),
        seconds_(seconds),
        fail_(fail) {}

  double patience() const override { return seconds_; }
  bool stalled(Call call, const std::string& waiting, double seconds) override;
  /// It has taken long, and no peer is to blame: a report, and nothing follows.
  void late(Call call, const std::string& waiting, double seconds);
  /// A call that is MPI's waits inside it: a report.
  void blocked(const char* call, const std::string& why, double seconds);
  void failed(Call call, const std::string& why) override;
  Farewell farewell_of(int rank) const noexcept override { return farewell_of_ ? farewell_of_(rank) : Farewell::none; }
  /// Why the window is broken; empty before.
  std::string cause() const;
  void rename(const std::string& window);

 private:
  void report(LogLevel level, const char* call, const std::string& waiting, double seconds,
              const char* what_follows) const;
  void release(const std::string& cause);

  mutable std::mutex mutex_;  ///< reports come from the threads of streams
  std::string window_;
  std::string cause_;
  HostWords* words_;
  const std::string advice_;
  const Suspicion suspicion_;
  const FarewellOf farewell_of_;
  const double seconds_;
  const bool fail_;
};

}  // namespace mpix
