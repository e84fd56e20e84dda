// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "device/host/stream.h"

namespace mpix {

/// Of host streams. These enqueue for next to nothing, so nobody gains by it: it is here for MPIX_POST=free to be tried
/// where there is no GPU.
class HostPostStreams final : public PostStreams {
 public:
  std::shared_ptr<StreamPoint> new_point() override;
  void raise(const std::vector<PostRaise>& raises) override;
  bool have_raised() noexcept override { return true; }
  std::shared_ptr<StreamPoint> launch_behind(const std::shared_ptr<StreamPoint>& point, Launch&& launch) override;
  void hold_back(Stream stream, bool captured, const std::shared_ptr<StreamPoint>& point) override;

 private:
  struct Aside {
    HostStream* stream;
    std::shared_ptr<StreamPoint> end;
  };
  std::mutex mutex_;
  std::list<Aside> asides_;  ///< a launch each, so that none is behind another's point
};

}  // namespace mpix
