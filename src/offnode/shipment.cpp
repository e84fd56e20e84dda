// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/shipment.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mpix {

namespace {
using Hold = std::lock_guard<std::mutex>;
}

bool Shipment::start() {
  Hold hold(mutex_);
  return try_to_start_stage();
}

void Shipment::start_stage() {
  const std::size_t left = content_.writes.size() - next_write_;
  const std::size_t count = std::min(left, held_.operations);
  const bool with_signal = content_.signal && count == left && held_.operations > count;
  try {
    transfer_ = peers_->budget().network().queue(content_.peer->connection, content_.writes.data() + next_write_, count,
                                                 with_signal ? &*content_.signal : nullptr);
  } catch (const Error& error) {
    throw Error(error.fault(), content_.peer->lost(error.what()));
  }
  signal_queued_ = with_signal;
  next_write_ += count;
  stage_ = {count + (with_signal ? 1 : 0), 1};
  transfer_->start();
  moved_ = true;
}

bool Shipment::advance() {
  while (!over_ && (!transfer_ || transfer_->finished())) {
    transfer_ = nullptr;
    if (given_up_ || all_queued()) {
      over_ = true;
    } else if (!try_to_start_stage()) {
      return false;
    }
  }
  return over_;
}

bool Shipment::try_to_start_stage() {
  try {
    start_stage();
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::memory) throw;
    return false;
  }
}

bool Shipment::is_over() {
  Hold hold(mutex_);
  return advance();
}

Grant Shipment::reclaim() {
  Hold hold(mutex_);
  if (transfer_ && (given_up_ || all_queued()) && transfer_->finished()) {
    transfer_ = nullptr;
    over_ = true;
  }
  if (!over_ && !given_up_) return {};
  const Grant kept = transfer_ ? stage_ : Grant{};
  Grant back = held_;
  back.take(kept);
  held_ = kept;
  return back;
}

void Shipment::give_up() {
  Hold hold(mutex_);
  given_up_ = true;
}

Grant Shipment::held() const {
  Hold hold(mutex_);
  return held_;
}

std::string Shipment::failure() {
  Hold hold(mutex_);
  const std::string text = transfer_ ? transfer_->failure() : "";
  return text.empty() ? "" : content_.peer->lost(text);
}

std::string Shipment::probe() {
  const std::string text = failure();
  if (!text.empty()) return text;
  return peers_->probe(*content_.peer);
}

std::string Shipment::missing() const {
  Hold hold(mutex_);
  if (over_) return "";
  return "rank " + std::to_string(content_.peer->rank) + " has not been reached with the " + content_.what +
         " of epoch " + std::to_string(content_.epoch);
}

bool Shipment::moved() {
  Hold hold(mutex_);
  return std::exchange(moved_, false);
}

}  // namespace mpix
