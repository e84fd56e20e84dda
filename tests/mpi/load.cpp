// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Epochs while the cores have other work: with 8 ranks on 2 cores, two threads that never rest.
#include <atomic>
#include <thread>

#include "support/catch.h"
#include "support/epochs.h"
#include "support/random_graphs.h"

using namespace test;

namespace {

class BackgroundLoad {
 public:
  explicit BackgroundLoad(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~BackgroundLoad() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("random graphs under load") {
  const BackgroundLoad load(rank() == 0 ? 2 : 0);
  run_random_graphs(static_cast<std::uint64_t>(parameter("SOAK_SEED", 11)),
                    scaled(static_cast<int>(parameter("SOAK_EPOCHS", 100))));
}

TEST_CASE("ring under load") {
  const BackgroundLoad load(rank() == 0 ? 2 : 0);
  for (std::size_t bytes : {64, 100000}) {
    Window window(Memory::device, bytes);
    Ring ring(window, window.base(), bytes);
    Stream stream;
    for (int k = scaled(100); k > 0; --k) ring.epoch(stream);
    stream.synchronize();
  }
}
