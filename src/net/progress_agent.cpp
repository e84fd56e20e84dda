// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/progress_agent.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

namespace mpix {
namespace {

constexpr auto nap_while_busy = std::chrono::microseconds(50);
constexpr auto longest_nap = std::chrono::microseconds(1000);

}  // namespace

ProgressAgent::ProgressAgent(std::shared_ptr<Progressing> network)
    : network_(std::move(network)), nap_(nap_while_busy) {
  begin_service(*this);
}

Poller::Clock::duration ProgressAgent::look(Clock::time_point) {
  // A thread that waits for the network looks all the time; then there is nothing to do here.
  const bool others_look = network_->looks() != seen_;
  if (!others_look) network_->progress();
  seen_ = network_->looks();
  if (others_look)
    nap_ = longest_nap;  // and that thread may be off its core for a while
  else
    nap_ = network_->is_busy() ? std::max<Clock::duration>(nap_ / 2, nap_while_busy)
                               : std::min<Clock::duration>(2 * nap_, longest_nap);
  return nap_;
}

void ProgressAgent::failed(const char* why) noexcept {
  try {
    log(LogLevel::error, std::string("the network is looked at no more: ") + why);
  } catch (const std::exception&) {  // no memory for a text
  }
}

}  // namespace mpix
