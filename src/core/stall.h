// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mutex>
#include <string>

#include "gpu/device.h"

namespace mpix {

/// The hang report of one window, and what follows it.
class StallReporter final : public StallHandler {
 public:
  StallReporter(const std::string& window, HostWords* words, double seconds, bool fail)
      : window_(window), words_(words), seconds_(seconds), fail_(fail) {}

  double patience() const override { return seconds_; }
  bool stalled(Call call, const std::string& waiting, double seconds) override;
  void rename(const std::string& window);

 private:
  std::mutex mutex_;  ///< reports come from the threads of streams
  std::string window_;
  HostWords* words_;
  const double seconds_;
  const bool fail_;
};

}  // namespace mpix
