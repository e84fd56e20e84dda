// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/kept.h"
#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// Keeps what captured launches need until the last graph that has them is destroyed; where the vendor's graphs
/// cannot tell, for ever.
class GraphKeeper {
 public:
  void keep(gpuStream_t stream, std::shared_ptr<const void> what) {
    bury();
    auto tie = std::make_unique<Tie>(Tie{yard_, std::move(what)});
    if (gpu_tie_to_graph(stream, tie.get(), let_go)) {
      tie.release();  // let_go() has it
      return;
    }
    std::lock_guard<std::mutex> hold(yard_->mutex);
    yard_->for_ever.push_back(std::move(tie->what));
  }

  /// Drop what graphs have let go. On a thread that may call the driver: theirs may not.
  void bury() {
    std::vector<std::shared_ptr<const void>> dead;  // dropped after the lock
    std::lock_guard<std::mutex> hold(yard_->mutex);
    dead.swap(yard_->dead);
  }

  GraphKeeper() = default;
  GraphKeeper(const GraphKeeper&) = delete;
  GraphKeeper& operator=(const GraphKeeper&) = delete;
  ~GraphKeeper() {
    bury();
    // Graphs may outlive the device; what they hold then must not come back to it.
    std::lock_guard<std::mutex> hold(yard_->mutex);
    yard_->closed = true;
    for (auto& what : yard_->for_ever) keep_for_ever(std::move(what));
  }

 private:
  struct Yard {
    std::mutex mutex;
    bool closed = false;
    std::vector<std::shared_ptr<const void>> dead, for_ever;
  };
  struct Tie {
    std::shared_ptr<Yard> yard;
    std::shared_ptr<const void> what;
  };

  static void GPU_CALLBACK let_go(void* pointer) {
    const std::unique_ptr<Tie> tie(static_cast<Tie*>(pointer));
    const std::shared_ptr<Yard> yard = tie->yard;  // outlives the lock
    std::lock_guard<std::mutex> hold(yard->mutex);
    if (yard->closed)
      keep_for_ever(std::move(tie->what));
    else
      yard->dead.push_back(std::move(tie->what));
  }

  std::shared_ptr<Yard> yard_ = std::make_shared<Yard>();
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
