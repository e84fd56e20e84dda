// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/rail_waits.h"

#include <algorithm>

#include "base/error.h"

namespace mpix {
namespace {

/// Never 0.
std::uint64_t wait_of(std::uint64_t number, std::uint32_t rank) { return (number + 1) << 32 | rank; }

}  // namespace

/// False: there is no room now.
bool RailWaits::send(const Listener& partner, const char* what, std::vector<NetworkWrite> writes, std::uint64_t word,
                     std::size_t place) {
  Shipment::Content content{partner.to, what, 0, std::move(writes), std::nullopt};
  content.signal = NetworkSignal{NetworkSignal::Kind::set, word, partner.memory, partner.at + place};
  OperationBudget::Turn turn;  // it is not worth waiting for
  try {
    auto shipment = Shipment::dispatch(budget_, owner_, std::move(content), turn).shipment;
    if (!shipment) return false;
    shipments_.push_back(std::move(shipment));
  } catch (const Error&) {
    // Whoever cannot be reached is found out when there is something to send.
  }
  return true;
}

bool RailWaits::tell(std::uint64_t number, std::uint32_t rank, const std::vector<std::uint32_t>& partners) {
  shipments_.remove_if([](const auto& shipment) { return shipment->is_over(); });
  return std::all_of(partners.begin(), partners.end(), [&](std::uint32_t partner) {
    return send(partners_[partner], "wait", {}, wait_of(number, rank), offsetof(CollectiveNote, waits));
  });
}

void RailWaits::tell_partners(const CallDifference& difference) {
  *out_ = difference;
  for (const Listener& partner : partners_) untold_.push_back(&partner);
  (void)go_on_telling();
}

bool RailWaits::go_on_telling() {
  constexpr std::size_t at = offsetof(CollectiveNote, difference);
  shipments_.remove_if([](const auto& shipment) { return shipment->is_over(); });
  const auto tell = [this](const Listener* partner) {
    return send(*partner, "difference",
                {{out_->calls, source_.get(), sizeof out_->calls, partner->memory,
                  partner->at + at + offsetof(CallDifference, calls)}},
                out_->ranks, at + offsetof(CallDifference, ranks));
  };
  untold_.erase(std::remove_if(untold_.begin(), untold_.end(), tell), untold_.end());
  return !shipments_.empty() || !untold_.empty();
}

int RailWaits::of_partner(std::size_t partner, std::uint64_t number) const {
  const std::uint64_t told = load_relaxed(&told_[partner].waits);
  const auto rank = static_cast<std::uint32_t>(told);
  return told == wait_of(number, rank) ? static_cast<int>(rank) : -1;
}

CallDifference RailWaits::difference_of_partner(std::size_t partner) const {
  const std::uint64_t ranks = load_acquire(&told_[partner].difference.ranks);
  return ranks == 0 ? CallDifference{} : told_[partner].difference;
}

}  // namespace mpix
