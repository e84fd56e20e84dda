// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <algorithm>
#include <utility>

#include "collective/rail_meeting.h"
#include "collective/rail_rounds.h"

namespace mpix {
namespace {

/// Where there are many nodes: few messages, each of which says something of many.
class MeetingInRounds final : public RailMeeting {
 public:
  MeetingInRounds(const RailShape& shape, const RailPlaces& places, std::vector<RailPeer> peers, RailSender& sender,
                  Differs differs)
      : RailMeeting(shape, places, std::move(peers), sender, std::move(differs)),
        rounds_(shape.nodes(), shape.node()) {}

  /// Headers are told in the rounds; here are data.
  void take(RailExchange& exchange) const override {
    exchange.heard.resize(peers_.size());
    places_.out_header(exchange.number, 0)->word = exchange.word();
    if (exchange.bytes() == 0 || exchange.route() == RailRoute::gathered) return;
    if (exchange.route() == RailRoute::passed_on) {
      if (const std::uint32_t root = root_of(exchange); root != rail_nobody)
        for (const std::uint32_t node : rounds_.children(root)) exchange.unsent.push_back(partner_on(node));
      return;
    }
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
      if (!exchange.sends_data_to(shape_.partners()[i], i)) continue;
      exchange.unsent.push_back(i);
      places_.out_header(exchange.number, i)->word = exchange.word();
    }
  }

  bool hear(RailExchanges& exchanges) override {
    bool moved = false;
    for (RailExchange& exchange : exchanges) {
      if (hear_data(exchange)) moved = true;
      if (hear_round(exchange)) moved = true;
    }
    return moved;
  }

  bool send(RailExchanges& exchanges) override {
    bool moved = false;
    for (RailExchange& exchange : exchanges) {
      if (!may_begin(exchanges, exchange)) break;
      if (send_data(exchange)) moved = true;
      if (tell_round(exchange)) moved = true;
    }
    return moved;
  }

  bool has_come(const RailExchange& exchange) const override {
    if (needs_rounds(exchange) && !is_met(exchange)) return false;
    for (std::uint32_t i = 0; i < peers_.size(); ++i)
      if (lacks_data(exchange, i)) return false;
    return true;
  }
  bool has_left(const RailExchange& exchange) const override {
    return exchange.unsent.empty() && exchange.shipments.empty() && is_met(exchange);
  }
  bool is_met(const RailExchange& exchange) const override { return exchange.round == rounds_.count(); }

  /// Those that it tells in rounds, and its children in trees.
  std::vector<std::uint32_t> listeners() const override {
    std::vector<std::uint32_t> found;
    for (std::uint32_t round = 0; round < rounds_.count(); ++round)
      for (std::uint32_t i = 0; i < RailRounds::fan; ++i)
        if (rounds_.has(round, i))
          for (const std::uint32_t node : {rounds_.to(round, i).node, rounds_.from(round, i).node})
            found.push_back(partner_on(node));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  /// In the rounds of the first exchange that is not met: those that have not told. And those whose data it needs, or
  /// that have not got data of an exchange before.
  void missing(const RailExchanges& exchanges, const RailExchange& of, bool at_the_end,
               const Missing& note) const override {
    for (const RailExchange& one : exchanges) {
      if (one.number > of.number || is_met(one)) continue;
      if (one.number < of.number || at_the_end || needs_rounds(one))
        for (std::uint32_t i = 0; i < RailRounds::fan; ++i)
          if (rounds_.has(one.round, i) && (one.was_told >> i & 1) == 0)
            note(partner_on(rounds_.from(one.round, i).node), one.number - 1);
      break;
    }
    for (const RailExchange& one : exchanges)
      for (const std::uint32_t partner : one.unsent)
        if (one.number < of.number && one.route() == RailRoute::direct) note(partner, one.number - 1);
    if (of.route() == RailRoute::passed_on) {
      const std::uint32_t root = root_of(of);
      if (root != rail_nobody && root != shape_.node() && lacks_data(of, partner_on(root)))
        note(partner_on(rounds_.parent(root)), of.number - 1);
      return;
    }
    for (std::uint32_t i = 0; i < peers_.size(); ++i)
      if (lacks_data(of, i)) note(i, of.number - 1);
  }

 private:
  static bool needs_rounds(const RailExchange& exchange) {
    return exchange.needs_all() && (exchange.bytes() == 0 || exchange.route() == RailRoute::gathered);
  }
  std::uint32_t partner_on(std::uint32_t node) const { return shape_.sources()[node]; }
  /// Of what is passed on: a node; rail_nobody: this rank has nothing to do with it.
  std::uint32_t root_of(const RailExchange& exchange) const {
    if (exchange.task.word[rail_to] != rail_nobody) return shape_.node();
    const auto needed = static_cast<std::uint32_t>(exchange.task.word[rail_needs]);
    return needed == rail_nobody ? rail_nobody : shape_.partners()[needed].node;
  }

  /// All have begun the one before, and of what was to be passed on in that nothing is under way.
  bool may_begin(const RailExchanges& exchanges, const RailExchange& exchange) const {
    if (exchange.number == exchanges.front().number) return true;
    const RailExchange& before = exchanges[exchange.number - 1 - exchanges.front().number];
    return is_met(before) && (before.route() == RailRoute::direct || has_left(before));
  }

  bool lacks_data(const RailExchange& exchange, std::uint32_t partner) const {
    return exchange.bytes() > 0 && exchange.route() != RailRoute::gathered && exchange.needs(partner) &&
           !exchange.heard[partner];
  }

  bool hear_data(RailExchange& exchange) {
    bool moved = false;
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
      if (!lacks_data(exchange, i)) continue;
      const RailHeader* const header = places_.in_header(exchange.number, i);
      if (load_acquire(&header->number) != exchange.number || !compare(exchange, i, header->word)) continue;
      moved = exchange.heard[i] = true;
    }
    return moved;
  }

  bool send_data(RailExchange& exchange) {
    const bool passes_on = exchange.route() == RailRoute::passed_on;
    const std::uint32_t root = passes_on && !exchange.unsent.empty() ? root_of(exchange) : shape_.node();
    const bool is_mine = root == shape_.node();
    if (!is_mine && !exchange.heard[partner_on(root)]) return false;
    bool moved = false;
    while (!exchange.unsent.empty()) {
      const std::uint32_t partner = exchange.unsent.front();
      const RailHeader* const from = is_mine ? places_.out_header(exchange.number, exchange.is_same() ? 0 : partner)
                                             : places_.in_header(exchange.number, partner_on(root));
      const Registration* const source = is_mine ? sender_.out.get() : sender_.in.get();
      if (!send_slot(exchange, partner, from, source, slot_there(partner, root), exchange.bytes())) break;
      exchange.unsent.erase(exchange.unsent.begin());
      moved = true;
    }
    return moved;
  }
  /// That of the rank on node `of`, among the partners of a partner of this rank.
  std::uint32_t slot_there(std::uint32_t partner, std::uint32_t of) const {
    return of < shape_.partners()[partner].node ? of : of - 1;
  }

  bool hear_round(RailExchange& exchange) {
    if (is_met(exchange)) return false;
    bool moved = false;
    for (std::uint32_t i = 0; i < RailRounds::fan; ++i) {
      if (!rounds_.has(exchange.round, i) || (exchange.was_told >> i & 1) != 0) continue;
      const RailTold* const told = told_place(exchange, i);
      if (load_acquire(&told->number) != exchange.number) continue;
      if (!compare(exchange, partner_on(rounds_.from(exchange.round, i).node), told->word)) continue;
      exchange.was_told |= 1u << i;
      moved = true;
    }
    end_round(exchange);
    return moved;
  }
  bool tell_round(RailExchange& exchange) {
    if (is_met(exchange)) return false;
    bool moved = false;
    for (std::uint32_t i = 0; i < RailRounds::fan; ++i) {
      if (!rounds_.has(exchange.round, i) || (exchange.has_told >> i & 1) != 0) continue;
      if (!tell(exchange, i)) break;
      exchange.has_told |= 1u << i;
      moved = true;
    }
    end_round(exchange);
    return moved;
  }
  void end_round(RailExchange& exchange) const {
    for (std::uint32_t i = 0; i < RailRounds::fan; ++i)
      if (rounds_.has(exchange.round, i) && (exchange.has_told & exchange.was_told & 1u << i) == 0) return;
    ++exchange.round;
    exchange.has_told = exchange.was_told = 0;
  }

  /// The same on all ranks; of the round at hand.
  const RailTold* told_place(const RailExchange& exchange, std::uint32_t i) const {
    const auto* const places = reinterpret_cast<const RailTold*>(places_.gathered - rounds_.told_bytes());
    return places + (exchange.number % 2 * rounds_.count() + exchange.round) * RailRounds::fan + i;
  }

  /// What is called, and what has come of the data for all.
  bool tell(RailExchange& exchange, std::uint32_t i) {
    const RailRounds::Other to = rounds_.to(exchange.round, i);
    const RailPeer& peer = peers_[partner_on(to.node)];
    const auto told_at =
        static_cast<std::uint64_t>(reinterpret_cast<const char*>(told_place(exchange, i)) - places_.in);
    const RailHeader* const own = places_.out_header(exchange.number, 0);
    std::vector<NetworkWrite> writes{
        {&own->word, sender_.out.get(), sizeof own->word, peer.memory, told_at + offsetof(RailTold, word)}};
    if (exchange.route() == RailRoute::gathered && exchange.bytes() > 0) {
      const std::uint64_t bytes = exchange.bytes();
      const auto at = [&](std::uint32_t node) {
        return static_cast<std::uint64_t>(places_.gathered - places_.in) +
               places_.gathered_at(exchange.number, node, bytes);
      };
      writes.push_back({own + 1, sender_.out.get(), bytes, peer.memory, at(shape_.node())});
      // Others' lie behind its own, in a circle.
      const std::uint32_t first = shape_.node() + 1, end = shape_.node() + to.blocks, nodes = shape_.nodes();
      const auto add = [&](std::uint32_t begin, std::uint32_t behind) {
        if (begin < behind)
          writes.push_back(
              {places_.in + at(begin), sender_.in.get(), at(behind - 1) + bytes - at(begin), peer.memory, at(begin)});
      };
      add(first, std::min(end, nodes));
      add(std::max(first, nodes) - nodes, std::max(end, nodes) - nodes);
    }
    return sender_.send(exchange, peer, std::move(writes), told_at);
  }

  const RailRounds rounds_;
};

}  // namespace

std::unique_ptr<RailMeeting> RailMeeting::in_rounds(const RailShape& shape, const RailPlaces& places,
                                                    std::vector<RailPeer> peers, RailSender& sender, Differs differs) {
  return std::make_unique<MeetingInRounds>(shape, places, std::move(peers), sender, std::move(differs));
}

}  // namespace mpix
