// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "core/neighbourhood.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/log.h"

namespace mpix {
namespace {

constexpr std::size_t alignment = 64;

std::size_t rounded_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Offsets in the control memory of one rank.
struct ControlLayout {
  std::size_t ranks;
  std::size_t mailbox_bytes;

  static std::size_t words(std::size_t rank) { return sizeof(Bell) + sizeof(GuardMarks) + rank * sizeof(PairWords); }
  std::size_t mailbox(std::size_t rank) const { return words(ranks) + rank * mailbox_bytes; }
  std::size_t bytes() const { return mailbox(ranks); }
};

std::size_t mailbox_bytes(std::uint32_t depth, std::uint32_t slot_lines) {
  return rounded_up(std::size_t{depth} * slot_lines * sizeof(Line));
}

}  // namespace

/// Two lines for the descriptor of a put, and one for every 8 bytes. What does not fit goes direct. A direct put into
/// staging memory needs its descriptor, and a last payload line may be partly filled: three lines a put.
std::uint32_t slot_lines_for(std::size_t window_bytes, std::uint32_t staged_puts, std::size_t eager_bytes) {
  const std::size_t payload = std::min(eager_bytes, window_bytes);
  const std::size_t overhead = staged_puts > 0 ? 3 * std::size_t{staged_puts} : payload / 16;
  return static_cast<std::uint32_t>((4 + payload / 8 + overhead + 3) / 4 * 4 + most_parts);
}

bool needs_relay(const Device& device, const Settings& settings) { return settings.relay || !device.serves_remote_work(); }

/// What ranks tell each other when a window is created.
struct Neighbourhood::Card {
  ExportedMemory control;
  ExportedMemory window;        ///< the allocation around the window, or the staging memory
  std::uint64_t window_offset;  ///< of the window in that allocation
  std::uint64_t window_bytes;
  std::uint64_t displacement_unit;
  std::uint64_t eager_bytes;
  std::uint32_t depth;
  std::uint32_t slot_lines;
  std::uint64_t place;  ///< see Device
  bool wants_guards;
  Waits waits;
  bool usable;        ///< this rank got its memory
  char trouble[200];  ///< why it did not
  bool staged;
  bool relayed;  ///< this rank reaches other nodes by a relay
};

Neighbourhood::Card Neighbourhood::make_card(const LocalMemory& memory, int size, const Settings& settings) {
  Card card{};
  card.window_bytes = memory.bytes;
  card.displacement_unit = memory.displacement_unit;
  card.eager_bytes = eager_bytes_;
  card.depth = settings.mailbox_slots;
  card.waits = settings.waits;
  card.relayed = needs_relay(device_, settings);
  try {
    device_.use_memory_of(memory.base, memory.bytes);
    std::optional<Allocation> around;
    if (memory.bytes > 0) around = device_.shareable(memory.base);
    const bool whole = around && static_cast<char*>(memory.base) + memory.bytes <= around->base + around->bytes;
    card.staged = memory.bytes > 0 && !whole;
    if (card.staged) {
      staging_ = device_.allocate(memory.bytes);
      card.window = device_.export_memory(staging_.base);
    } else if (memory.bytes > 0) {
      card.window = device_.export_memory(around->base);
      card.window_offset = static_cast<std::uint64_t>(static_cast<char*>(memory.base) - around->base);
    }
    card.slot_lines = slot_lines_for(memory.bytes, card.staged ? max_staged_puts : 0, eager_bytes_);
    const ControlLayout layout{static_cast<std::size_t>(size), mailbox_bytes(card.depth, card.slot_lines)};
    control_ = std::shared_ptr<char>(device_.allocate(layout.bytes()).base,
                                     [device = &device_](char* base) { device->release(base); });
    card.control = device_.export_memory(control_.get());
    bell_ = reinterpret_cast<Bell*>(control_.get());
    card.place = device_.place();
    card.wants_guards = device_.wants_guards_where_shared();
    PairWords words{};
    words.credit = card.depth;  // for guards, which are decided on when all cards are known
    fill_words(words, size);
    card.usable = true;
  } catch (const Error& error) {
    std::snprintf(card.trouble, sizeof card.trouble, "%s", error.what());
  }
  return card;
}

void Neighbourhood::connect(int rank, const Card& card, const Card& mine, int my_rank, int size) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const auto other = static_cast<std::size_t>(rank);
  const auto me = static_cast<std::size_t>(my_rank);
  const auto ranks = static_cast<std::size_t>(size);
  const ControlLayout here{ranks, mailbox_bytes(mine.depth, mine.slot_lines)};
  const ControlLayout there{ranks, mailbox_bytes(card.depth, card.slot_lines)};

  char* control = device_.import_memory(card.control);
  imports_.push_back(control);
  auto* my_words_there = reinterpret_cast<PairWords*>(control + ControlLayout::words(me));
  peer.bell = reinterpret_cast<Bell*>(control);
  peer.outbox = Ring{reinterpret_cast<Line*>(control + there.mailbox(me)), card.depth, card.slot_lines};
  peer.there = my_words_there;
  peer.words = reinterpret_cast<PairWords*>(control_.get() + ControlLayout::words(other));
  peer.inbox = Ring{reinterpret_cast<Line*>(control_.get() + here.mailbox(other)), mine.depth, mine.slot_lines};
  if (card.window_bytes > 0) {
    char* window = device_.import_memory(card.window);
    imports_.push_back(window);
    peer.direct = window + card.window_offset;
  }
  peer.staged = card.staged;
  peer.eager_bytes = eager_bytes_;
  peer.most_puts = card.staged ? max_staged_puts : 0;
  peer.staging = staging_.base;
}

Neighbourhood::Neighbourhood(const LocalMemory& memory, Bootstrap& bootstrap, Device& device,
                             const Settings& settings)
    : device_(device),
      window_(static_cast<char*>(memory.base)),
      eager_bytes_(settings.eager_bytes.value_or(device.preferred_eager_bytes())),
      peers_(static_cast<std::size_t>(bootstrap.size())) {
  const int me = bootstrap.rank();
  const Card mine = make_card(memory, bootstrap.size(), settings);
  const std::vector<Card> cards = bootstrap.allgather(mine);

  std::vector<unsigned char> mapped(peers_.size(), 0);
  for (int rank = 0; rank < size(); ++rank) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.window_bytes = card.window_bytes;
    peer.displacement_unit = card.displacement_unit;
    if (!mine.usable || !card.usable || !bootstrap.same_node(rank)) continue;
    try {
      connect(rank, card, mine, me, size());
      mapped[static_cast<std::size_t>(rank)] = 1;
    } catch (const Error& error) {
      peer.trouble = "rank " + std::to_string(rank) + "'s memory cannot be mapped from here: " + error.what();
      log(LogLevel::warn, peer.trouble);
    }
  }

  // A pair works only when each side has mapped the other. This exchange is also the barrier after which
  // every rank is ready to be written to.
  std::vector<unsigned char> matrix(peers_.size() * peers_.size());
  bootstrap.allgather(mapped.data(), mapped.size(), matrix.data());
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    peers_[rank].reachable = mapped[rank] && matrix[rank * peers_.size() + static_cast<std::size_t>(me)];

  // Every rank sees the same cards, so all throw or none.
  const bool agreed = std::all_of(cards.begin(), cards.end(), [&](const Card& card) {
    return !card.usable ||
           (card.depth == mine.depth && card.eager_bytes == mine.eager_bytes && card.waits == mine.waits &&
            (card.relayed == mine.relayed || !bootstrap.spans_nodes()));
  });
  const auto unusable = std::find_if(cards.begin(), cards.end(), [](const Card& card) { return !card.usable; });
  if (unusable != cards.end() || !agreed) {
    close();
    throw Error(Fault::memory, unusable != cards.end()
                                   ? "rank " + std::to_string(unusable - cards.begin()) + ": " + unusable->trouble
                                   : "MPIX_EAGER_SIZE, MPIX_MAILBOX_SLOTS, MPIX_WAIT, MPIX_DEVICE or MPIX_RELAY differ between the ranks");
  }
  needs_guards_ = decide_guards(cards, bootstrap);
  for (int rank = 0; rank < size(); ++rank)
    if (rank != me && mine.place != 0 && cards[static_cast<std::size_t>(rank)].place == mine.place) ++sharers_;
}

/// All ranks of a node alike, for both sides of a pair count. Also those that have a GPU to themselves: a guard costs
/// them a few microseconds, and the kernel of a rank that waits for one without would keep a shared GPU.
bool Neighbourhood::decide_guards(const std::vector<Card>& cards, const Bootstrap& bootstrap) const {
  // Guards know nothing of networks.
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (!bootstrap.same_node(static_cast<int>(rank))) return false;
  std::vector<std::uint64_t> places;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].waits != Waits::automatic) return cards[rank].waits == Waits::memory;
    if (bootstrap.same_node(static_cast<int>(rank)) && cards[rank].wants_guards && cards[rank].place != 0)
      places.push_back(cards[rank].place);
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) != places.end();
}

PairWords Neighbourhood::retired_words() {
  PairWords words{};
  words.credit = words.pending = open_guard;
  words.own.opened.epochs = retired_epoch;
  std::fill_n(words.own.sent.epochs, most_parts, retired_epoch);
  std::fill_n(words.own.closed.epochs, most_parts, retired_epoch);
  return words;
}

void Neighbourhood::retire() { fill_words(retired_words(), size()); }

void Neighbourhood::fill_words(const PairWords& words, int size) {
  const std::vector<PairWords> all(static_cast<std::size_t>(size), words);
  device_.write(control_.get() + ControlLayout::words(0), all.data(), all.size() * sizeof words);
}

Neighbourhood::~Neighbourhood() { close(); }

void Neighbourhood::close() noexcept {
  for (char* import : imports_) device_.close_import(import);
  imports_.clear();
  if (staging_.base) device_.release(staging_.base);
  staging_ = Allocation{};
  control_ = nullptr;
}

}  // namespace mpix
