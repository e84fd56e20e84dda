// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// When an epoch follows the plan of one before.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/host/host_device.h"
#include "epoch/window.h"
#include "host_ranks.h"
#include "support/catch.h"
#include "thread_ranks.h"

using namespace mpix;

namespace {

/// One rank that puts into itself: value i, which is i + 1, to element i of its window.
class OwnPuts {
 public:
  explicit OwnPuts(Bootstrap& bootstrap, Device& device)
      : memory_(device, 4096, true),
        window_("plans", memory_.local(8), bootstrap, device, Settings::from_environment()) {}

  void epoch(const std::vector<int>& which) {
    window_.post_stream({0}, stream_);
    window_.start_stream({0});
    for (int i : which) window_.put({&values_[i], sizeof(long), 0, i});
    window_.complete_stream(stream_);
    window_.wait_stream(stream_);
  }

  /// What has arrived, of the four elements, since this was asked before.
  std::vector<long> taken() {
    EXPECT(stream_->synchronize());
    long* const arrived = reinterpret_cast<long*>(memory_.data());
    std::vector<long> all(arrived, arrived + 4);
    std::fill(arrived, arrived + 4, 0);
    return all;
  }

  /// Plans built, and epochs that had one already
  std::pair<std::uint64_t, std::uint64_t> plans() const {
    const Stats stats = window_.stats();
    return {stats.plans_built, stats.plans_reused};
  }

  std::uint64_t puts() const { return window_.stats().puts; }

 private:
  long values_[4] = {1, 2, 3, 4};
  WindowMemory memory_;
  Window window_;
  ScopedStream stream_;
};

using Plans = std::pair<std::uint64_t, std::uint64_t>;
using Values = std::vector<long>;

void with_own_puts(void (*test)(OwnPuts&)) {
  auto device = make_host_device(Settings::from_environment(), 1);
  ThreadRanks(1).run([&](Bootstrap& bootstrap) {
    OwnPuts rank(bootstrap, *device);
    test(rank);
  });
}

}  // namespace

TEST_CASE("a repeated epoch reuses its plan; a changed one does not", "[engine]") {
  with_own_puts([](OwnPuts& rank) {
    rank.epoch({0, 1});
    EXPECT(rank.plans() == Plans(1, 0));
    rank.epoch({0, 1});
    rank.epoch({0, 1});
    EXPECT(rank.plans() == Plans(1, 2));
    rank.epoch({0});  // a prefix of the plan
    rank.epoch({0, 1, 2});
    rank.epoch({0, 2});
    EXPECT(rank.plans() == Plans(4, 2));
    for (int i = 0; i < 3; ++i) {  // in turn
      rank.epoch({0});
      rank.epoch({0, 2});
      rank.epoch({0, 1});
      rank.epoch({0, 1, 2});
    }
    EXPECT(rank.plans() == Plans(4, 14));
    EXPECT(rank.taken() == Values({1, 2, 3, 0}));
    EXPECT(rank.puts() == 2 + 4 + 1 + 3 + 2 + 3 * 8);
  });
}

TEST_CASE("an epoch goes on with another plan only where that began alike", "[engine]") {
  with_own_puts([](OwnPuts& rank) {
    rank.epoch({0, 1});
    rank.epoch({2, 3});
    EXPECT(rank.taken() == Values({1, 2, 3, 4}));
    rank.epoch({2, 1});  // begins as the one, and goes on as the other
    EXPECT(rank.taken() == Values({0, 2, 3, 0}));
    EXPECT(rank.plans() == Plans(3, 0));
  });
}
