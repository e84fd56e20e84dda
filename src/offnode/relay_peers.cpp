// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay_peers.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

/// Lines carry 8 bytes in 16: what is larger is worth the wait for the post.
constexpr std::size_t preset_eager_bytes = 16 * 1024;

std::size_t ring_bytes(std::uint32_t depth, std::uint32_t slot_lines) {
  return std::size_t{depth} * slot_lines * sizeof(Line);
}

}  // namespace

/// A plan's blocks keep the memory, and so it may end after the window.
class RelayPeers::ToPeer final : public OutgoingSource {
 public:
  ToPeer(RelayPeers& all, const RelayWords& words) : all_(all), words_(words) {}

  Block take(std::size_t bytes) override {
    const Outgoing::Block block = all_.outgoing().take(bytes);
    const Outgoing::Epochs epochs{words_.mine.own.sent.epochs, &words_.finished};
    const auto give_back = [all = all_.shared_from_this(), block, bytes, epochs](const void*) {
      all->outgoing().give_back(block, bytes, epochs);
    };
    return {block.base, block.place, std::shared_ptr<const void>(block.base, give_back)};
  }

 private:
  RelayPeers& all_;
  const RelayWords& words_;
};

/// What ranks tell each other when a window is created.
struct RelayPeers::Card {
  NetworkAddress address;
  RemoteMemory block;
  RemoteMemory staging;
  std::uint32_t slot_lines;
  bool usable;
  char network[11];
};

/// Offsets in the block of one rank.
struct RelayPeers::Offsets {
  std::size_t peers, inbox_bytes;

  static std::size_t words(std::size_t peer) { return peer * sizeof(RelayWords); }
  static std::size_t landed(std::size_t peer) { return words(peer) + offsetof(RelayWords, landed); }
  std::size_t inbox(std::size_t peer) const { return words(peers) + peer * inbox_bytes; }
  std::size_t bytes() const { return inbox(peers); }
};

RelayPeers::Card RelayPeers::make_card(const LocalMemory& memory, Device& device, std::uint32_t depth) {
  Card card{};
  slot_lines_ = slot_lines_for(memory.bytes, max_relayed_puts, eager_bytes_);
  card.slot_lines = slot_lines_;
  if (!budget_) return card;
  try {
    Network& network = budget_->network();
    const std::string name = network.name();
    std::memcpy(card.network, name.data(), std::min(name.size(), sizeof card.network - 1));
    card.address = network.address();
    const Offsets layout{peers_.size(), ring_bytes(depth, slot_lines_)};
    region_ = device.allocate_pinned(layout.bytes());
    region_exposed_ = network.expose(region_.get(), layout.bytes());
    card.block = region_exposed_->remote();
    if (memory.bytes > 0) {
      staging_ = device.allocate_pinned(memory.bytes);
      staging_exposed_ = network.expose(staging_.get(), memory.bytes);
      card.staging = staging_exposed_->remote();
    }
    card.usable = true;
  } catch (const Error& error) {
    why_not_ = error.what();
    log(LogLevel::info, why_not_);  // a call that needs it tells
  }
  return card;
}

void RelayPeers::connect(RelayPeer& peer, std::size_t position, const Card& card, std::size_t my_position_there,
                         std::size_t peers_there, std::uint32_t depth) {
  const Offsets there{peers_there, ring_bytes(depth, card.slot_lines)};
  peer.connection = budget_->network().connect(card.address);
  peer.block = card.block;
  peer.landed_offset = Offsets::landed(my_position_there);
  peer.inbox_offset = there.inbox(my_position_there);
  peer.staging = card.staging;
  peer.words = reinterpret_cast<RelayWords*>(region_.get() + Offsets::words(position));
  peer.outbox = Ring{nullptr, depth, card.slot_lines};
}

void RelayPeers::introduce(RelayPeer& peer, std::size_t position, std::uint32_t depth, Peer& neighbour) {
  const Offsets here{peers_.size(), ring_bytes(depth, slot_lines_)};
  neighbour.reachable = true;
  neighbour.relayed = true;
  neighbour.outbox = peer.outbox;
  peer.outgoing = std::make_unique<ToPeer>(*this, *peer.words);
  neighbour.outgoing = peer.outgoing.get();
  neighbour.staged = true;
  neighbour.most_puts = max_relayed_puts;
  neighbour.eager_bytes = eager_bytes_;
  neighbour.bell = &peer.words->bell;
  neighbour.inbox = Ring{reinterpret_cast<Line*>(region_.get() + here.inbox(position)), depth, slot_lines_};
  neighbour.staging = staging_.get();
  neighbour.words = &peer.words->mine;
  neighbour.there = &peer.words->there;
}

RelayPeers::RelayPeers(const LocalMemory& memory, Bootstrap& bootstrap, Device& device, OperationBudget* budget,
                       const std::string& why_not, const Settings& settings, Neighbourhood& neighbours)
    : budget_(budget), why_not_(why_not), eager_bytes_(settings.nic_eager_bytes.value_or(preset_eager_bytes)) {
  const int me = bootstrap.rank();
  const std::uint32_t depth = settings.mailbox_slots;
  for (int rank = 0; rank < bootstrap.size(); ++rank)
    if (!bootstrap.same_node(rank)) peers_.emplace_back().rank = rank;
  if (peers_.empty()) return;  // on all ranks or on none

  Card mine = make_card(memory, device, depth);
  const std::vector<Card> cards = bootstrap.allgather(mine);
  const NumbersElsewhere numbers(bootstrap);

  // A pair needs both sides. What each found out is exchanged, which is also the barrier after which all are ready.
  std::vector<unsigned char> reached(cards.size(), 0);
  std::size_t outboxes_bytes = 0;
  try {
    for (std::size_t position = 0; position < peers_.size(); ++position) {
      RelayPeer& peer = peers_[position];
      const Card& card = cards[static_cast<std::size_t>(peer.rank)];
      const bool agree = std::strcmp(card.network, mine.network) == 0;
      if (mine.usable && card.usable && !agree)
        why_not_ =
            "MPIX_NIC differs between the ranks: " + std::string(mine.network) + " here, " + card.network + " there";
      const std::size_t window_bytes = neighbours.peer(peer.rank).window_bytes;
      if (window_bytes > Outgoing::most_offset) why_not_ = "its window is larger than 256 GiB";
      if (!mine.usable || !card.usable || !agree || window_bytes > Outgoing::most_offset) continue;
      connect(peer, position, card, numbers.number_at(peer.rank), numbers.count_at(peer.rank), depth);
      reached[static_cast<std::size_t>(peer.rank)] = 1;
      outboxes_bytes += ring_bytes(depth, card.slot_lines);
    }
    if (outboxes_bytes > 0) {
      outgoing_ = std::make_unique<Outgoing>(device, budget_->network());
      outboxes_ = device.allocate_pinned(outboxes_bytes);
      outboxes_registered_ = budget_->network().register_source(outboxes_.get(), outboxes_bytes);
    }
  } catch (const Error& error) {
    why_not_ = error.what();
    std::fill(reached.begin(), reached.end(), 0);
  }
  Unreached unreached;
  for (const RelayPeer& peer : peers_)
    if (!reached[static_cast<std::size_t>(peer.rank)]) unreached.add(peer.rank);
  const std::vector<Unreached> all_unreached = bootstrap.allgather(unreached);
  if (why_not_.empty()) why_not_ = "it has no network";

  char* next = outboxes_.get();
  for (std::size_t position = 0; position < peers_.size(); ++position) {
    RelayPeer& peer = peers_[position];
    const auto rank = static_cast<std::size_t>(peer.rank);
    Peer& neighbour = neighbours.peer(peer.rank);
    if (!reached[rank] || all_unreached[rank].has(me)) {
      neighbour.trouble = "rank " + std::to_string(rank) + " is on another node, and cannot be reached: " + why_not_;
      continue;
    }
    peer.outbox.lines = reinterpret_cast<Line*>(next);
    next += ring_bytes(depth, peer.outbox.slot_lines);
    introduce(peer, position, depth, neighbour);
    connected_.push_back(&peer);
  }
}

std::string RelayPeers::probe(const RelayPeer& peer) {
  const std::string why = budget_->network().probe(peer.connection, peer.block, peer.landed_offset);
  return why.empty() ? why : peer.lost(why);
}

void RelayPeers::retire(const PairWords& words) {
  for (RelayPeer* peer : connected_) std::memcpy(&peer->words->mine, &words, sizeof words);
}

void RelayPeers::withdraw() { region_exposed_ = staging_exposed_ = nullptr; }

RelayPeers::~RelayPeers() {
  withdraw();  // before the memory goes
  outboxes_registered_ = nullptr;
}

}  // namespace mpix
