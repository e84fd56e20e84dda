// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay_peers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

/// What is larger is worth landing memory.
constexpr std::size_t preset_eager_bytes = 16 * 1024;

/// For what comes from one origin. What is more is given when it is asked for.
constexpr std::size_t most_unasked = std::size_t{32} << 20;

/// What is more than this may go from the origin buffer into the window.
std::size_t direct_above(OperationBudget* budget, const Device& device, std::size_t eager_bytes) {
  const std::size_t least = budget ? budget->network().least_device_write() : SIZE_MAX;
  if (least == SIZE_MAX || device.is_host()) return least == SIZE_MAX ? SIZE_MAX : eager_bytes;
  return std::max(eager_bytes, least - 1);
}

/// For the entries of most epochs, and what goes with them.
std::size_t inbox_bytes(std::size_t window_bytes, std::size_t eager_bytes) {
  return (entries_bytes(max_relayed_puts) + std::min(window_bytes, eager_bytes) + 63) / 64 * 64;
}

static_assert(max_relayed_puts <= Arrival::most_entries, "an arrival says how many there are");
static_assert(sizeof(RelayWords) % 64 == 0, "inboxes begin behind it");

}  // namespace

/// A plan keeps the memory, and so that may end after the window.
class RelayPeers::ToPeer final : public OutgoingSource {
 public:
  ToPeer(RelayPeers& all, RelayPeer& peer) : all_(all), peer_(peer) {}

  Taken take(PlannedMessage message) override {
    Taken taken;
    taken.send = peer_.outgoing->enter(std::move(message));
    taken.send.parts_packed = const_cast<std::uint32_t*>(peer_.counters->parts_packed);
    const auto leave = [all = all_.shared_from_this(), this, number = taken.send.message](const char*) {
      peer_.outgoing->leave(number);
    };
    taken.keep = std::shared_ptr<const char>(taken.send.data, leave);
    return taken;
  }

 private:
  RelayPeers& all_;
  RelayPeer& peer_;
};

/// What one rank is told.
struct RelayPeers::Told {
  LandingPlace answer;
  FirstPost first;
};

RelayPeers::RelayPeers(const Team& team, Device& device, OperationBudget* budget, const std::string& why_not,
                       const Settings& settings)
    : device_(device),
      team_(team),
      budget_(budget),
      eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)),
      direct_above_(direct_above(budget, device, eager_bytes_)),
      doorsteps_(team.why_not().empty() ? why_not : team.why_not()) {}

void RelayPeers::offer(const LocalMemory& memory, WindowCard& card) {
  if (!budget_) return;
  window_ = static_cast<char*>(memory.base);
  window_bytes_ = memory.bytes;
  half_bytes_ = sizeof(RelayWords) + inboxes * inbox_bytes(memory.bytes, eager_bytes_);
  doorsteps_.offer(team_, budget_->network(), card);
  takes_direct_ = direct_above_ < window_bytes_ && device_.lets_networks_reach(window_);
  card.takes_direct = takes_direct_ ? 1 : 0;
  if (direct_above_ != SIZE_MAX) all_take_direct_.reserve(static_cast<std::size_t>(team_.size()));
}

void RelayPeers::connect(const std::vector<WindowCard>& cards) {
  doorsteps_.connect(team_, cards);
  if (direct_above_ == SIZE_MAX) return;
  for (const WindowCard& card : cards) all_take_direct_.push_back(card.takes_direct != 0);
}

// ---- ranks that epochs name ----------------------------------------------------------------------------

RelayPeers::Halves RelayPeers::new_halves(std::size_t pairs) {
  Network& network = budget_->network();
  Halves halves;
  halves.memory = device_.allocate_pinned(pairs * half_bytes_);
  halves.told = device_.allocate_pinned(pairs * sizeof(Told));
  const std::vector<RelayedCounters> counters(pairs);
  halves.counters = device_.upload(counters.data(), pairs * sizeof(RelayedCounters));
  halves.exposed = network.expose(halves.memory.get(), pairs * half_bytes_);
  halves.registered = network.register_source(halves.told.get(), pairs * sizeof(Told));
  return halves;
}

void RelayPeers::name(const std::vector<int>& ranks, Neighbourhood& neighbours) {
  std::vector<int> added;
  for (int rank : ranks)
    if (reaches(rank) && !neighbours.peer(rank).relayed) added.push_back(rank);
  if (added.empty()) return;
  if (takes_direct_ && !window_exposed_) window_exposed_ = budget_->network().expose(window_, window_bytes_);
  halves_.push_back(new_halves(added.size()));
  const Halves& halves = halves_.back();
  for (std::size_t i = 0; i < added.size(); ++i) {
    RelayPeer& peer = peers_[added[i]];
    char* const half = halves.memory.get() + i * half_bytes_;
    Told& told = reinterpret_cast<Told*>(halves.told.get())[i];
    peer.rank = added[i];
    peer.connection = team_.far(peer.rank).connection;
    peer.registered = halves.registered.get();
    peer.words = new (half) RelayWords{};
    peer.words->out.allowed = 1;
    peer.counters = static_cast<const RelayedCounters*>(halves.counters.get()) + i;
    peer.answer = &told.answer;
    told.first.block = halves.exposed->remote();
    told.first.block.base += i * half_bytes_;
    if (window_exposed_) told.first.window = window_exposed_->remote();
    peer.told = &told.first;
    introduce(peer, neighbours.peer(peer.rank));
  }
}

void RelayPeers::introduce(RelayPeer& peer, Peer& neighbour) {
  peer.outgoing = std::make_unique<Outgoing>(device_, budget_->network(), peer.words->out);
  peer.to_outgoing = std::make_unique<ToPeer>(*this, peer);
  neighbour.outgoing = peer.to_outgoing.get();
  neighbour.allowed = &peer.words->out.allowed;
  neighbour.inbox_bytes = peer.inbox_bytes = inbox_bytes(neighbour.window_bytes, eager_bytes_);
  neighbour.inbox = Ring{reinterpret_cast<Line*>(peer.words + 1), inboxes,
                         static_cast<std::uint32_t>((half_bytes_ - sizeof(RelayWords)) / inboxes / sizeof(Line)), 0};
  neighbour.most_puts = max_relayed_puts;
  neighbour.eager_bytes = eager_bytes_;
  if (!all_take_direct_.empty() && all_take_direct_[static_cast<std::size_t>(peer.rank)]) {
    neighbour.direct_above = direct_above_;
    // No CPU may be able to write to that window.
    if (team_.far(peer.rank).other_device)
      neighbour.direct_above = std::max(direct_above_, budget_->network().least_device_write() - 1);
  }
  neighbour.bell = &peer.words->bell;
  neighbour.words = const_cast<PairWords*>(&peer.counters->words);
  neighbour.there = &peer.words->there;
  neighbour.reachable = true;
  neighbour.relayed = &peer.words->in;
}

Landing RelayPeers::new_landing() {
  Landing landing;
  if (!device_.waits_for_launches() || window_bytes_ <= eager_bytes_) return landing;
  try {
    landing.grow(Outgoing::range_bytes(std::min(window_bytes_, most_unasked)), device_, budget_->network());
  } catch (const Error& error) {
    log(LogLevel::info, error.what());  // an origin that needs it asks
  }
  return landing;
}

PairCounters RelayPeers::counters_of(const RelayPeer& peer) const {
  PairCounters counters;
  device_.read(&counters, &peer.counters->words.own, sizeof counters);
  return counters;
}

void RelayPeers::retire(const PairWords& words) {
  for (auto& peer : peers_) device_.write(const_cast<PairWords*>(&peer.second.counters->words), &words, sizeof words);
}

void RelayPeers::withdraw() {
  doorsteps_.withdraw();
  window_exposed_ = nullptr;
  for (Halves& halves : halves_) halves.exposed = nullptr;
  for (auto& peer : peers_) peer.second.landing.withdraw();
}

RelayPeers::~RelayPeers() = default;

}  // namespace mpix
