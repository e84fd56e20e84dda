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

/// Offsets in the block of one rank.
struct RelayPeers::Offsets {
  std::size_t peers, inbox_bytes;

  static std::size_t words(std::size_t peer) { return peer * sizeof(RelayWords); }
  std::size_t inbox(std::size_t peer) const { return words(peers) + peer * inbox_bytes; }
  std::size_t bytes() const { return inbox(peers); }
};

RelayPeers::RelayPeers(const Team& team, Device& device, OperationBudget* budget, const std::string& why_not,
                       const Settings& settings)
    : device_(device),
      budget_(budget),
      why_not_(team.why_not().empty() ? why_not : team.why_not()),
      eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)),
      depth_(settings.mailbox_slots) {
  for (int rank = 0; rank < team.size(); ++rank)
    if (!team.same_node(rank)) peers_.emplace_back().rank = rank;
}

/// With the outboxes, in the largest size that they may have to be: what fails now is told to all.
void RelayPeers::offer(const LocalMemory& memory, WindowCard& card) {
  if (peers_.empty() || !budget_) return;
  window_bytes_ = memory.bytes;
  slot_lines_ = slot_lines_for(memory.bytes, max_relayed_puts, eager_bytes_);
  const std::uint32_t most_lines = slot_lines_for(SIZE_MAX, max_relayed_puts, eager_bytes_);
  try {
    Network& network = budget_->network();
    const Offsets layout{peers_.size(), ring_bytes(depth_, slot_lines_)};
    region_ = device_.allocate_pinned(layout.bytes());
    region_exposed_ = network.expose(region_.get(), layout.bytes());
    const std::size_t bytes = peers_.size() * (ring_bytes(depth_, most_lines) + sizeof(LandingPlace));
    outboxes_ = device_.allocate_pinned(bytes);
    outboxes_registered_ = network.register_source(outboxes_.get(), bytes);
    card.set_block(region_exposed_->remote());
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
}

void RelayPeers::connect(RelayPeer& peer, std::size_t position, const WindowCard& card, std::size_t my_position_there,
                         std::size_t peers_there) {
  const std::uint32_t slot_lines = slot_lines_for(card.bytes, max_relayed_puts, eager_bytes_);
  const Offsets there{peers_there, ring_bytes(depth_, slot_lines)};
  peer.block = card.block();
  peer.words_offset = Offsets::words(my_position_there);
  peer.inbox_offset = there.inbox(my_position_there);
  peer.words = reinterpret_cast<RelayWords*>(region_.get() + Offsets::words(position));
  peer.outbox = Ring{nullptr, depth_, slot_lines};
}

void RelayPeers::introduce(RelayPeer& peer, std::size_t position, Peer& neighbour) {
  const Offsets here{peers_.size(), ring_bytes(depth_, slot_lines_)};
  neighbour.reachable = true;
  neighbour.relayed = true;
  neighbour.outbox = peer.outbox;
  peer.outgoing =
      std::make_unique<Outgoing>(device_, budget_->network(), *peer.words->mine.own.sent.epochs, peer.words->finished);
  peer.to_outgoing = std::make_unique<ToPeer>(*this, *peer.outgoing);
  neighbour.outgoing = peer.to_outgoing.get();
  neighbour.staged = true;
  neighbour.most_puts = max_relayed_puts;
  neighbour.eager_bytes = eager_bytes_;
  neighbour.bell = &peer.words->bell;
  neighbour.inbox = Ring{reinterpret_cast<Line*>(region_.get() + here.inbox(position)), depth_, slot_lines_};
  neighbour.words = &peer.words->mine;
  neighbour.there = &peer.words->there;
}

/// A pair needs both sides: a rank that has a block has all that it takes, and the team knows which ranks reach each
/// other.
void RelayPeers::connect(const std::vector<WindowCard>& cards, Neighbourhood& neighbours) {
  const Team& team = neighbours.team();
  const NumbersElsewhere numbers(team);
  if (why_not_.empty()) why_not_ = "it has no network";
  const bool usable = cards[static_cast<std::size_t>(team.rank())].has_block;
  char* next = outboxes_.get();
  for (std::size_t position = 0; position < peers_.size(); ++position) {
    RelayPeer& peer = peers_[position];
    const WindowCard& card = cards[static_cast<std::size_t>(peer.rank)];
    const Team::Far& far = team.far(peer.rank);
    Peer& neighbour = neighbours.peer(peer.rank);
    if (!usable || !card.has_block || !far.reachable) {
      neighbour.trouble =
          "rank " + std::to_string(peer.rank) + " is on another node, and cannot be reached: " + why_not_;
      continue;
    }
    peer.connection = far.connection;
    connect(peer, position, card, numbers.number_at(peer.rank), numbers.count_at(peer.rank));
    peer.outbox.lines = reinterpret_cast<Line*>(next);
    next += ring_bytes(depth_, peer.outbox.slot_lines);
    peer.answer = reinterpret_cast<LandingPlace*>(next);
    next += sizeof(LandingPlace);
    introduce(peer, position, neighbour);
    connected_.push_back(&peer);
  }
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
      budget_->network().probe(peer.connection, peer.block, peer.words_offset + offsetof(RelayWords, landed));
  return why.empty() ? why : peer.lost(why);
}

void RelayPeers::retire(const PairWords& words) {
  for (RelayPeer* peer : connected_) std::memcpy(&peer->words->mine, &words, sizeof words);
}

void RelayPeers::withdraw() {
  region_exposed_ = nullptr;
  for (RelayPeer& peer : peers_) peer.landing.withdraw();
}

RelayPeers::~RelayPeers() {
  withdraw();  // before the memory goes
  outboxes_registered_ = nullptr;
}

}  // namespace mpix
