// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/shipment.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mpix {

namespace {
using Hold = std::lock_guard<std::mutex>;
}

Shipment::Dispatched Shipment::dispatch(OperationBudget& budget, const void* window, Content content,
                                        OperationBudget::Turn& turn) {
  const std::optional<Grant> grant = budget.try_admit(window, content.wanted(), turn, false);
  if (!grant) return {};
  auto shipment = std::make_shared<Shipment>(budget, window, std::move(content), *grant);
  bool started = false;
  try {
    started = shipment->start();
  } catch (...) {
    budget.give_up(shipment);
    throw;
  }
  if (!started) {
    budget.give_up(shipment);
    return {nullptr, true};
  }
  budget.enlist(shipment);
  return {std::move(shipment), true};
}

bool Shipment::start() {
  Hold hold(mutex_);
  return try_to_start_stage();
}

bool Shipment::start_stage() {
  try {
    const bool queued = transfer_.queue(
        budget_.network(), content_.to->connection(), content_.writes.size(),
        [this](std::size_t i) { return content_.writes[i]; }, content_.signal ? &*content_.signal : nullptr, free_);
    if (!queued) return false;
  } catch (const Error& error) {
    throw Error(error.fault(), lost(content_.to->name(), error.what()));
  }
  transfer_.start();
  return moved_ = true;
}

bool Shipment::advance() {
  while (!over_ && (!transfer_.has_stage() || transfer_.finished())) {
    if (transfer_.has_stage()) transfer_.end_stage(free_);
    if (given_up_ || transfer_.all_queued()) {
      over_ = true;
    } else if (!try_to_start_stage()) {
      return false;
    }
  }
  return over_;
}

bool Shipment::try_to_start_stage() {
  try {
    return start_stage();
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
  if (transfer_.has_stage() && (given_up_ || transfer_.all_queued()) && transfer_.finished()) {
    transfer_.end_stage(free_);
    over_ = true;
  }
  if (!over_ && !given_up_) return {};
  return std::exchange(free_, Grant{});
}

void Shipment::give_up() {
  Hold hold(mutex_);
  given_up_ = true;
}

Grant Shipment::held() const {
  Hold hold(mutex_);
  Grant held = free_;
  held.add(transfer_.held());
  return held;
}

std::string Shipment::failure() {
  Hold hold(mutex_);
  const std::string text = transfer_.has_stage() ? transfer_.failure() : "";
  return text.empty() ? "" : lost(content_.to->name(), text);
}

std::string Shipment::probe() {
  const std::string text = failure();
  if (!text.empty()) return text;
  return content_.to->probe();
}

std::string Shipment::missing() const {
  Hold hold(mutex_);
  if (over_) return "";
  return content_.to->name() + " has not been reached with the " + content_.what +
         (content_.epoch > 0 ? " of epoch " + std::to_string(content_.epoch) : "");
}

bool Shipment::moved() {
  Hold hold(mutex_);
  return std::exchange(moved_, false);
}

}  // namespace mpix
