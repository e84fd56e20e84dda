// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/progress_agent.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace mpix {
namespace {

constexpr auto nap_while_busy = std::chrono::microseconds(50);
constexpr auto longest_nap = std::chrono::microseconds(1000);

}  // namespace

ProgressAgent::ProgressAgent(std::shared_ptr<Progressing> network) : network_(std::move(network)) {
  thread_ = start_thread("the network", [this] { work(); });
}

ProgressAgent::~ProgressAgent() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressAgent::work() {
  prctl(PR_SET_TIMERSLACK, 1000);  // naps are short
  auto nap = nap_while_busy;
  std::uint64_t seen = 0;
  std::unique_lock<std::mutex> hold(mutex_);
  while (!stop_) {
    hold.unlock();
    // Who waits for the network looks all the time; then there is nothing to do here.
    const bool others_look = network_->looks() != seen;
    if (!others_look) network_->progress();
    seen = network_->looks();
    if (others_look)
      nap = longest_nap;  // and who looks may be off its core for a while
    else
      nap = network_->is_busy() ? std::max(nap / 2, nap_while_busy) : std::min(2 * nap, longest_nap);
    hold.lock();
    if (!stop_) changed_.wait_for(hold, nap);
  }
}

}  // namespace mpix
