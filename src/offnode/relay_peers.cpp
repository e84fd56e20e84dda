// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay_peers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

/// Lines carry 8 bytes in 16: what is larger is worth the wait for the post.
constexpr std::size_t preset_eager_bytes = 16 * 1024;

/// For what comes from one origin. What is more is given when it is asked for.
constexpr std::size_t most_unasked = std::size_t{32} << 20;

std::size_t ring_bytes(std::uint32_t depth, std::uint32_t slot_lines) {
  return std::size_t{depth} * slot_lines * sizeof(Line);
}

}  // namespace

/// A plan keeps the memory, and so that may end after the window.
class RelayPeers::ToPeer final : public OutgoingSource {
 public:
  ToPeer(RelayPeers& all, Outgoing& outgoing) : all_(all), outgoing_(outgoing) {}

  Block take(std::size_t bytes) override {
    char* const base = outgoing_.enter(bytes);
    const auto leave = [all = all_.shared_from_this(), this](const char* its) { outgoing_.leave(its); };
    return {base, std::shared_ptr<const char>(base, leave)};
  }

 private:
  RelayPeers& all_;
  Outgoing& outgoing_;
};

RelayPeers::RelayPeers(const Team& team, Device& device, OperationBudget* budget, const std::string& why_not,
                       const Settings& settings)
    : device_(device),
      team_(team),
      budget_(budget),
      why_not_(team.why_not().empty() ? why_not : team.why_not()),
      eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)),
      depth_(settings.mailbox_slots) {}

void RelayPeers::offer(const LocalMemory& memory, WindowCard& card) {
  if (!budget_) return;
  window_bytes_ = memory.bytes;
  slot_lines_ = slot_lines_for(memory.bytes, max_relayed_puts, eager_bytes_);
  try {
    doorsteps_.offer(team_, budget_->network(), card);
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
}

void RelayPeers::connect(const std::vector<WindowCard>& cards) {
  doorsteps_.connect(team_, cards);
  if (why_not_.empty()) why_not_ = "it has no network";
}

// ---- ranks that epochs name ----------------------------------------------------------------------------

std::size_t RelayPeers::half_bytes() const { return sizeof(RelayWords) + ring_bytes(depth_, slot_lines_); }

std::size_t RelayPeers::outbox_bytes(const Peer& neighbour) const {
  return ring_bytes(depth_, slot_lines_for(neighbour.window_bytes, max_relayed_puts, eager_bytes_)) +
         sizeof(LandingPlace) + sizeof(FirstPost);
}

RelayPeers::Halves RelayPeers::new_halves(std::size_t pairs, std::size_t outbox_bytes) {
  Network& network = budget_->network();
  Halves halves;
  halves.memory = device_.allocate_pinned(pairs * half_bytes());
  halves.outboxes = device_.allocate_pinned(outbox_bytes);
  halves.exposed = network.expose(halves.memory.get(), pairs * half_bytes());
  halves.registered = network.register_source(halves.outboxes.get(), outbox_bytes);
  return halves;
}

void RelayPeers::name(const std::vector<int>& ranks, Neighbourhood& neighbours) {
  std::vector<int> added;
  std::size_t all_outboxes = 0;
  for (int rank : ranks)
    if (reaches(rank) && !neighbours.peer(rank).relayed) {
      added.push_back(rank);
      all_outboxes += outbox_bytes(neighbours.peer(rank));
    }
  if (added.empty()) return;
  halves_.push_back(new_halves(added.size(), all_outboxes));
  const Halves& halves = halves_.back();
  char *half = halves.memory.get(), *outbox = halves.outboxes.get();
  for (int rank : added) {
    Peer& neighbour = neighbours.peer(rank);
    RelayPeer& peer = peers_[rank];
    peer.rank = rank;
    peer.connection = team_.far(rank).connection;
    peer.registered = halves.registered.get();
    peer.words = reinterpret_cast<RelayWords*>(half);
    peer.outbox = Ring{reinterpret_cast<Line*>(outbox), depth_,
                       slot_lines_for(neighbour.window_bytes, max_relayed_puts, eager_bytes_)};
    char* const behind = outbox + ring_bytes(depth_, peer.outbox.slot_lines);
    peer.answer = reinterpret_cast<LandingPlace*>(behind);
    auto* const told = reinterpret_cast<FirstPost*>(behind + sizeof(LandingPlace));
    told->block = halves.exposed->remote();
    told->block.base += static_cast<std::uint64_t>(half - halves.memory.get());
    peer.told = told;
    introduce(peer, neighbour);
    half += half_bytes();
    outbox += outbox_bytes(neighbour);
  }
}

void RelayPeers::introduce(RelayPeer& peer, Peer& neighbour) {
  neighbour.outbox = peer.outbox;
  peer.outgoing =
      std::make_unique<Outgoing>(device_, budget_->network(), *peer.words->mine.own.sent.epochs, peer.words->finished);
  peer.to_outgoing = std::make_unique<ToPeer>(*this, *peer.outgoing);
  neighbour.outgoing = peer.to_outgoing.get();
  neighbour.staged = true;
  neighbour.most_puts = max_relayed_puts;
  neighbour.eager_bytes = eager_bytes_;
  neighbour.bell = &peer.words->bell;
  neighbour.inbox = Ring{reinterpret_cast<Line*>(peer.words + 1), depth_, slot_lines_};
  neighbour.words = &peer.words->mine;
  neighbour.there = &peer.words->there;
  neighbour.reachable = neighbour.relayed = true;
}

Landing RelayPeers::new_landing() {
  Landing landing;
  if (!device_.waits_for_launches() || window_bytes_ <= eager_bytes_) return landing;
  try {
    landing.grow(Outgoing::block_bytes(std::min(window_bytes_, most_unasked)), device_, budget_->network());
  } catch (const Error& error) {
    log(LogLevel::info, error.what());  // an origin that needs it asks
  }
  return landing;
}

std::string RelayPeers::probe(const RelayPeer& peer) {
  const std::string why =
      budget_->network().probe(peer.connection, doorsteps_.table(peer.rank), doorsteps_.offset_of_mine());
  return why.empty() ? why : peer.lost(why);
}

void RelayPeers::retire(const PairWords& words) {
  for (auto& peer : peers_) std::memcpy(&peer.second.words->mine, &words, sizeof words);
}

void RelayPeers::withdraw() {
  doorsteps_.withdraw();
  for (Halves& halves : halves_) halves.exposed = nullptr;
  for (auto& peer : peers_) peer.second.landing.withdraw();
}

RelayPeers::~RelayPeers() = default;

}  // namespace mpix
