// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace mpix {

/// Of a call that waits for what nobody tells it of: longer and longer. `meanwhile`: before each, or null.
class Naps {
 public:
  explicit Naps(const std::function<void()>& meanwhile)
      : meanwhile_(meanwhile), longest_(meanwhile ? std::chrono::microseconds(200) : std::chrono::microseconds(2000)) {}

  void next() {
    if (meanwhile_) meanwhile_();
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(2 * nap_, longest_);
  }

 private:
  const std::function<void()>& meanwhile_;
  const std::chrono::microseconds longest_;
  std::chrono::microseconds nap_{5};
};

}  // namespace mpix
