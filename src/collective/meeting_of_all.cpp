// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <algorithm>
#include <numeric>
#include <utility>

#include "collective/rail_meeting.h"

namespace mpix {

bool RailSender::send(RailExchange& exchange, const RailPeer& to, std::vector<NetworkWrite> writes,
                      std::uint64_t signal_at) {
  Shipment::Content content{to.to, "data", exchange.number, std::move(writes), std::nullopt};
  content.signal = NetworkSignal{NetworkSignal::Kind::set, exchange.number, to.memory, signal_at};
  auto shipment = Shipment::dispatch(budget, owner, std::move(content), turn).shipment;
  if (!shipment) return false;
  exchange.shipments.push_back(std::move(shipment));
  return true;
}

bool RailMeeting::send_slot(RailExchange& exchange, std::uint32_t partner, const RailHeader* from,
                            const Registration* registered, std::uint32_t slot, std::uint64_t data_bytes) {
  const RailPeer& peer = peers_[partner];
  // In the partner's memory all slots are as large.
  const std::uint64_t at = (exchange.number % 2 * peer.slots + slot) * places_.slot();
  const std::uint64_t bytes = sizeof from->word + (data_bytes > 0 ? sizeof from->unused + data_bytes : 0);
  return sender_.send(exchange, peer, {{&from->word, registered, bytes, peer.memory, at + offsetof(RailHeader, word)}},
                      at);
}

namespace {

/// A rank sends each partner a message, with data if there are some for it. So each knows by itself of each other.
class MeetingOfAll final : public RailMeeting {
 public:
  MeetingOfAll(const RailShape& shape, const RailPlaces& places, std::vector<RailPeer> peers, RailSender& sender,
               Differs differs)
      : RailMeeting(shape, places, std::move(peers), sender, std::move(differs)), begun_(peers_.size()) {}

  void take(RailExchange& exchange) const override {
    exchange.unsent.resize(peers_.size());
    std::iota(exchange.unsent.begin(), exchange.unsent.end(), 0);
    for (const std::uint32_t partner : exchange.unsent)
      places_.out_header(exchange.number, partner)->word = exchange.word();
  }

  bool hear(RailExchanges& exchanges) override {
    bool moved = false;
    for (std::uint32_t i = 0; i < peers_.size(); ++i)
      for (RailExchange& exchange : exchanges) {
        if (exchange.number <= begun_[i]) continue;
        const RailHeader* const header = places_.in_header(exchange.number, i);
        if (load_acquire(&header->number) != exchange.number || !compare(exchange, i, header->word)) break;
        begun_[i] = exchange.number;
        moved = true;
      }
    return moved;
  }

  bool send(RailExchanges& exchanges) override {
    bool moved = false;
    for (RailExchange& exchange : exchanges)
      for (auto partner = exchange.unsent.begin(); partner != exchange.unsent.end();) {
        if (begun_[*partner] + 1 < exchange.number) {
          ++partner;
          continue;
        }
        if (!send_to(exchange, *partner)) break;
        partner = exchange.unsent.erase(partner);
        moved = true;
      }
    return moved;
  }

  bool has_come(const RailExchange& exchange) const override {
    for (std::uint32_t i = 0; i < peers_.size(); ++i)
      if (exchange.needs(i) && begun_[i] < exchange.number) return false;
    return true;
  }
  bool has_left(const RailExchange& exchange) const override {
    return exchange.unsent.empty() && exchange.shipments.empty();
  }
  bool is_met(const RailExchange& exchange) const override {
    return std::all_of(begun_.begin(), begun_.end(), [&](std::uint64_t begun) { return begun >= exchange.number; });
  }

  std::vector<std::uint32_t> listeners() const override {
    std::vector<std::uint32_t> all(peers_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  void missing(const RailExchanges& exchanges, const RailExchange& of, bool at_the_end,
               const Missing& note) const override {
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
      const bool holds_back = std::any_of(exchanges.begin(), exchanges.end(), [&](const RailExchange& one) {
        return one.number < of.number && std::count(one.unsent.begin(), one.unsent.end(), i) > 0;
      });
      if (holds_back || ((at_the_end || of.needs(i)) && begun_[i] < of.number)) note(i, begun_[i]);
    }
  }

 private:
  bool send_to(RailExchange& exchange, std::uint32_t partner) {
    const bool with_data = exchange.sends_data_to(shape_.partners()[partner], partner);
    const RailHeader* const from = places_.out_header(exchange.number, with_data && exchange.is_same() ? 0 : partner);
    return send_slot(exchange, partner, from, sender_.out.get(), peers_[partner].position,
                     with_data ? exchange.bytes() : 0);
  }

  std::vector<std::uint64_t> begun_;  ///< by partner: the last that it has, and called the same
};

}  // namespace

std::unique_ptr<RailMeeting> RailMeeting::of_all(const RailShape& shape, const RailPlaces& places,
                                                 std::vector<RailPeer> peers, RailSender& sender, Differs differs) {
  return std::make_unique<MeetingOfAll>(shape, places, std::move(peers), sender, std::move(differs));
}

}  // namespace mpix
