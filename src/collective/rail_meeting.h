// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/awake_clock.h"
#include "collective/rail_shape.h"
#include "net/shipment.h"
#include "wire/rail.h"

namespace mpix {

/// An exchange between nodes, as the service has it under way (rails.h).
struct RailExchange {
  std::uint64_t number;
  Task task;
  AwakeClock::time_point since;
  std::vector<std::uint32_t> unsent;  ///< partners
  std::list<std::shared_ptr<Shipment>> shipments;
  std::vector<bool> heard;  ///< in rounds: whose data have come, by partner
  std::uint32_t round = 0;  ///< in rounds: the one at hand; of those that it tells, and is told by, in it: bits
  std::uint32_t has_told = 0, was_told = 0;

  std::uint64_t word() const { return task.word[rail_word]; }
  std::uint64_t bytes() const { return task.word[rail_bytes]; }
  bool is_same() const { return task.word[rail_same] != 0; }
  bool needs_all() const { return task.word[rail_needs] == rail_everybody; }
  bool needs(std::uint32_t partner) const { return needs_all() || task.word[rail_needs] == partner; }
  RailRoute route() const { return static_cast<RailRoute>(task.word[rail_route]); }
  bool sends_data_to(const RailPartner& partner, std::uint32_t number_of_it) const {
    return bytes() > 0 && partner.gets_from(static_cast<std::uint32_t>(task.word[rail_to]), number_of_it);
  }
};
/// Those that are not over, in their order.
using RailExchanges = std::deque<RailExchange>;

/// A partner, as a rank's messages reach it.
struct RailPeer {
  std::shared_ptr<Recipient> to;
  RemoteMemory memory;     ///< its `in`
  std::uint32_t position;  ///< of this rank, among its partners,
  std::uint32_t slots;     ///< which are so many
};

/// How this rank sends.
struct RailSender {
  OperationBudget& budget;
  const void* owner;
  std::shared_ptr<const Registration> out, in;  ///< sources are in these places; `in`: of what is passed on
  OperationBudget::Turn turn{};

  /// False: not now.
  bool send(RailExchange& exchange, const RailPeer& to, std::vector<NetworkWrite> writes, std::uint64_t signal_at);
};

/// The messages of exchanges: that ranks have begun them, and data. What they are, and when they may be sent, is in
/// wire/rail.h. Under the lock of Rails.
class RailMeeting {
 public:
  /// `differs`: a partner has called this, and this rank in the same exchange that.
  using Differs = std::function<void(std::uint32_t partner, std::uint64_t theirs, std::uint64_t mine)>;
  /// A partner that an exchange waits for, and the last exchange that this is known to have begun.
  using Missing = std::function<void(std::uint32_t partner, std::uint64_t begun)>;

  virtual ~RailMeeting() = default;
  const std::vector<RailPeer>& peers() const { return peers_; }

  virtual void take(RailExchange& exchange) const = 0;
  /// True: something has come.
  virtual bool hear(RailExchanges& exchanges) = 0;
  /// True: something is being sent.
  virtual bool send(RailExchanges& exchanges) = 0;
  /// What this rank needs has.
  virtual bool has_come(const RailExchange& exchange) const = 0;
  /// Nothing of it is left to be sent.
  virtual bool has_left(const RailExchange& exchange) const = 0;
  /// All have begun it, so that nothing more of what this rank does not need will come.
  virtual bool is_met(const RailExchange& exchange) const = 0;
  /// Partners that may wait to hear from this rank.
  virtual std::vector<std::uint32_t> listeners() const = 0;
  /// `at_the_end`: of an exchange that has all that it needs.
  virtual void missing(const RailExchanges& exchanges, const RailExchange& of, bool at_the_end,
                       const Missing& note) const = 0;

  /// Each rank tells all its partners.
  static std::unique_ptr<RailMeeting> of_all(const RailShape& shape, const RailPlaces& places,
                                             std::vector<RailPeer> peers, RailSender& sender, Differs differs);
  /// For RailPlaces::rounds.
  static std::unique_ptr<RailMeeting> in_rounds(const RailShape& shape, const RailPlaces& places,
                                                std::vector<RailPeer> peers, RailSender& sender, Differs differs);

 protected:
  RailMeeting(const RailShape& shape, const RailPlaces& places, std::vector<RailPeer> peers, RailSender& sender,
              Differs differs)
      : shape_(shape), places_(places), peers_(std::move(peers)), sender_(sender), differs_(std::move(differs)) {}

  /// What is called and, where there are any, data: from a slot here, into slot `slot` there. False: not now.
  bool send_slot(RailExchange& exchange, std::uint32_t partner, const RailHeader* from, const Registration* registered,
                 std::uint32_t slot, std::uint64_t data_bytes);
  /// Whether it is the same.
  bool compare(const RailExchange& exchange, std::uint32_t partner, std::uint64_t word) const {
    if (word == exchange.word()) return true;
    differs_(partner, word, exchange.word());
    return false;
  }

  const RailShape& shape_;
  const RailPlaces& places_;
  const std::vector<RailPeer> peers_;
  RailSender& sender_;
  const Differs differs_;
};

}  // namespace mpix
