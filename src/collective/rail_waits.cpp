// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/rail_waits.h"

#include "base/error.h"

namespace mpix {
namespace {

/// In waits[]. Never 0.
std::uint64_t wait_of(std::uint64_t number, std::uint32_t rank) { return (number + 1) << 32 | rank; }
std::uint64_t difference_of(std::uint32_t rank) { return std::uint64_t{UINT32_MAX} << 32 | rank; }

}  // namespace

void RailWaits::tell_partners(std::uint64_t number, std::uint32_t rank) { tell(number, wait_of(number, rank)); }

void RailWaits::tell_partners_of_difference(std::uint32_t rank) { tell(0, difference_of(rank)); }

void RailWaits::tell(std::uint64_t number, std::uint64_t word) {
  shipments_.remove_if([](const auto& shipment) { return shipment->is_over(); });
  for (const Listener& partner : partners_) {
    Shipment::Content content{partner.to, "wait", number, {}, std::nullopt};
    content.signal = NetworkSignal{NetworkSignal::Kind::set, word, partner.memory, partner.at};
    OperationBudget::Turn turn;  // it is not worth waiting for
    try {
      if (auto shipment = Shipment::dispatch(budget_, owner_, std::move(content), turn).shipment)
        shipments_.push_back(std::move(shipment));
    } catch (const Error&) {
      // Whoever cannot be reached is found out when there is something to send.
    }
  }
}

bool RailWaits::are_telling() {
  shipments_.remove_if([](const auto& shipment) { return shipment->is_over(); });
  return !shipments_.empty();
}

int RailWaits::difference_of_partner(std::size_t partner) const {
  const std::uint64_t told = load_relaxed(told_ + partner);
  const auto rank = static_cast<std::uint32_t>(told);
  return told == difference_of(rank) ? static_cast<int>(rank) : -1;
}

void RailWaits::tell_node(int rank) {
  if (on_node_.ranks() == 1 || has_told_node_ == (rank >= 0)) return;
  has_told_node_ = rank >= 0;
  const std::uint64_t word = rank < 0 ? 0 : std::uint64_t{1} << 32 | static_cast<std::uint32_t>(rank);
  if (on_host_.base) return store_release(&on_host_.words(on_node_.me).waits, word);
  device_.write_word(reinterpret_cast<std::uint64_t*>(on_node_.own() + on_node_.places.waits()), word);
}

int RailWaits::of_partner(std::size_t partner, std::uint64_t number) const {
  const std::uint64_t told = load_relaxed(told_ + partner);
  const auto rank = static_cast<std::uint32_t>(told);
  return told == wait_of(number, rank) ? static_cast<int>(rank) : -1;
}

int RailWaits::of_node(std::size_t local) const {
  const Collective& c = on_node_;
  if (local == c.me || local >= Collective::most_near) return -1;
  const std::uint64_t word =
      on_host_.base ? load_acquire(&on_host_.words(static_cast<std::uint32_t>(local)).waits)
                    : device_.read_word(reinterpret_cast<const std::uint64_t*>(c.near[local] + c.places.waits()));
  return word == 0 ? -1 : static_cast<int>(static_cast<std::uint32_t>(word));
}

}  // namespace mpix
