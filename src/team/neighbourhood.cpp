// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/neighbourhood.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "base/log.h"
#include "config.h"
#include "team/differing.h"

namespace mpix {
namespace {

std::size_t mailbox_bytes(std::uint32_t depth, std::uint32_t slot_lines) {
  return std::size_t{depth} * slot_lines * sizeof(Line);
}

/// Grows with every change of what ranks write into each other's memory, or tell each other.
constexpr std::uint32_t wire_version = 2;

/// In front of all that ranks tell each other, and the same for ever: which library this is.
struct Build {
  char name[8];
  std::uint32_t version;
  std::uint32_t shape;  ///< of what two compilers could lay out differently
  char release[16];

  static Build mine() {
    Build build{"libmpix", wire_version, 0, {}};
    for (std::size_t bytes :
         {sizeof(Bell), sizeof(GuardMarks), sizeof(PairWords), sizeof(Line), sizeof(NodeOffer), sizeof(void*)})
      build.shape = build.shape * 31 + static_cast<std::uint32_t>(bytes);
    std::snprintf(build.release, sizeof build.release, "%s", PACKAGE_VERSION);
    return build;
  }
  std::string text() const {
    return "libmpix " + std::string(release, strnlen(release, sizeof release)) + " (" + std::to_string(version) + "." +
           std::to_string(shape) + ")";
  }
};

constexpr std::uint64_t not_set = UINT64_MAX;

std::string number_text(std::uint64_t value) { return value == not_set ? "the preset" : std::to_string(value); }

const char* waits_text(Waits waits) {
  return waits == Waits::automatic ? "auto" : waits == Waits::kernel ? "kernel" : "memory";
}

}  // namespace

/// Two lines for the descriptor of a put, and one for every 8 bytes. What does not fit goes direct. A direct put into
/// staging memory needs its descriptor, and a last payload line may be partly filled: three lines a put.
std::uint32_t slot_lines_for(std::size_t window_bytes, std::uint32_t staged_puts, std::size_t eager_bytes) {
  const std::size_t payload = std::min(eager_bytes, window_bytes);
  const std::size_t overhead = staged_puts > 0 ? 3 * std::size_t{staged_puts} : payload / 16;
  return static_cast<std::uint32_t>((4 + payload / 8 + overhead + 3) / 4 * 4 + most_parts);
}

bool needs_relay(const Device& device, const Settings& settings) {
  return settings.relay || !device.serves_remote_work();
}

/// What ranks tell each other when a window is created.
struct Neighbourhood::Card {
  Build build;
  char device[8];
  std::uint64_t domain;  ///< see Device, as place
  std::uint64_t place;
  std::uint64_t window_bytes;
  std::uint64_t displacement_unit;
  std::uint64_t eager_bytes;
  std::uint64_t eager_setting;
  std::uint32_t depth;
  std::uint32_t slot_lines;
  std::uint32_t rooms, rooms_taken;  ///< see WaitingRoom; 0: kernels take none
  bool has_guards;
  Waits waits;
  bool wants_guards;
  bool staged;
  bool relayed;  ///< this rank reaches other nodes by a relay
  bool usable;   ///< this rank got its memory
  union {
    NodeOffer offer;                  ///< what it shares; or, where it is not usable,
    char trouble[sizeof(NodeOffer)];  ///< why not
  };

  std::string device_name() const { return std::string(device, strnlen(device, sizeof device)); }
  NodeRank as_node_rank(int local) const { return {local, mailbox_bytes(depth, slot_lines), window_bytes, staged}; }
};

/// Ranks that share memory, or could.
struct Neighbourhood::Group {
  int least = -1;
  bool agrees = true;

  /// All that can be one group have the same.
  static std::tuple<int, std::string, std::uint64_t> key(int node, const Card& card) {
    return {node, card.device_name(), card.domain};
  }
};

Neighbourhood::Card Neighbourhood::make_card(const LocalMemory& memory, const Bootstrap& bootstrap,
                                             const Settings& settings) {
  static_assert(std::is_trivially_copyable_v<Card> && sizeof(Card) <= 376,
                "cards are small, for all ranks get all of them");
  Card card{};
  card.build = Build::mine();
  std::snprintf(card.device, sizeof card.device, "%s", device_.name());
  card.domain = device_.sharing_domain();
  card.window_bytes = memory.bytes;
  card.displacement_unit = memory.displacement_unit;
  card.eager_bytes = eager_bytes_;
  card.eager_setting = settings.eager_bytes.value_or(not_set);
  card.depth = depth_;
  card.waits = settings.waits;
  card.relayed = needs_relay(device_, settings);
  try {
    device_.use_memory_of(memory.base, memory.bytes);
    NodeShape shape;
    if (memory.bytes > 0) shape.around = device_.shareable(memory.base);
    if (shape.around && static_cast<char*>(memory.base) + memory.bytes > shape.around->base + shape.around->bytes)
      shape.around = std::nullopt;
    staged_ = card.staged = memory.bytes > 0 && !shape.around;
    slot_lines_ = card.slot_lines = slot_lines_for(memory.bytes, staged_ ? max_staged_puts : 0, eager_bytes_);
    shape.me = card.as_node_rank(local(me_));
    shape.locals = locals_count_;
    shape.window = memory.base;
    for (int rank = 0; rank < size(); ++rank)
      if (local(rank) >= 0 && bootstrap.process_of(rank) >= 0)
        shape.processes.push_back(static_cast<std::uint64_t>(bootstrap.process_of(rank)));
    memory_ = device_.new_node_memory(shape);
    card.offer = memory_->offer();
    card.place = device_.place();
    card.wants_guards = device_.wants_guards_where_shared();
    card.has_guards = device_.has_guards();
    waiting_room_ = device_.new_waiting_room();
    if (waiting_room_) {
      card.rooms = waiting_room_->all();
      card.rooms_taken = waiting_room_->taken();
    }
    card.usable = true;
  } catch (const Error& error) {
    card.offer = NodeOffer{};
    std::snprintf(card.trouble, sizeof card.trouble, "%s", error.what());
  }
  return card;
}

/// Every rank sees the same cards, so all throw or none, with the same text.
void Neighbourhood::check_cards(const std::vector<Card>& cards, const Bootstrap& bootstrap) {
  const auto differs = [&](auto text_of) {
    std::vector<std::string> texts;
    for (const Card& card : cards) texts.push_back(text_of(card));
    return differing(texts);
  };
  const auto check = [&](const std::string& what, auto text_of) {
    const std::string text = differs(text_of);
    if (!text.empty()) throw Error(Fault::memory, what + " between the ranks: " + text);
  };
  const auto other_build = std::find_if(cards.begin(), cards.end(), [&](const Card& card) {
    return std::memcmp(&card.build, &cards.front().build, sizeof card.build) != 0;
  });
  if (other_build != cards.end()) check("the library differs", [](const Card& card) { return card.build.text(); });
  const auto unusable = std::find_if(cards.begin(), cards.end(), [](const Card& card) { return !card.usable; });
  if (unusable != cards.end())
    throw Error(Fault::memory, "rank " + std::to_string(unusable - cards.begin()) + ": " + unusable->trouble);

  const auto same = [&](auto value_of) {
    return std::all_of(cards.begin(), cards.end(),
                       [&](const Card& card) { return value_of(card) == value_of(cards.front()); });
  };
  const auto compare = [&](const char* setting, auto value_of, auto text_of) {
    if (!same(value_of))
      check(std::string(setting) + " differs", [&](const Card& card) { return std::string(text_of(value_of(card))); });
  };
  compare(
      "MPIX_EAGER_SIZE", [](const Card& card) { return card.eager_setting; }, number_text);
  compare(
      "MPIX_MAILBOX_SLOTS", [](const Card& card) { return std::uint64_t{card.depth}; }, number_text);
  compare(
      "MPIX_WAIT", [](const Card& card) { return card.waits; }, waits_text);
  if (!bootstrap.spans_nodes() || same([](const Card& card) { return card.relayed; })) return;
  if (same([](const Card& card) { return card.device_name(); }))
    check("MPIX_RELAY differs", [](const Card& card) { return std::string(card.relayed ? "on" : "off"); });
  why_no_network_ =
      "the devices differ between the ranks: " + differs([](const Card& card) { return card.device_name(); });
}

/// The ranks that this one shares memory with, after a second exchange where they could not do with what they offered.
void Neighbourhood::make_group(std::vector<Card>& cards, Bootstrap& bootstrap) {
  std::map<std::tuple<int, std::string, std::uint64_t>, Group> groups;
  const auto group_of = [&](int rank) -> Group& {
    return groups[Group::key(bootstrap.node_of(rank), cards[static_cast<std::size_t>(rank)])];
  };
  bool all_agree = true;
  for (int rank = 0; rank < size(); ++rank) {
    Group& group = group_of(rank);
    if (group.least < 0) group.least = rank;
    const NodeOffer& least = cards[static_cast<std::size_t>(group.least)].offer;
    const NodeOffer& own = cards[static_cast<std::size_t>(rank)].offer;
    if (least.is_new || (own.id != 0 && own.id == least.id)) continue;
    group.agrees = all_agree = false;
  }
  const Group& mine = group_of(me_);
  for (int rank = 0; rank < size(); ++rank)
    if (&group_of(rank) == &mine) group_.push_back(rank);
  if (all_agree) return;
  NodeOffer offer = cards[static_cast<std::size_t>(me_)].offer;
  if (!mine.agrees && mine.least == me_) offer = memory_->offer_anew();
  const std::vector<NodeOffer> offers = bootstrap.allgather(offer);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) cards[rank].offer = offers[rank];
}

void Neighbourhood::join(int rank, const Card& card) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  memory_->join(card.as_node_rank(local(rank)), card.offer);
  peer.outbox = Ring{nullptr, card.depth, card.slot_lines};
  peer.inbox = Ring{nullptr, depth_, slot_lines_};
  peer.staged = card.staged;
  peer.eager_bytes = eager_bytes_;
  peer.most_puts = card.staged ? max_staged_puts : 0;
  peer.reachable = true;
}

void Neighbourhood::join(const std::vector<Card>& cards, int me) {
  const auto card_of = [&](int rank) -> const Card& { return cards[static_cast<std::size_t>(rank)]; };
  std::vector<NodeRank> group;
  for (int rank : group_) group.push_back(card_of(rank).as_node_rank(local(rank)));
  std::string alone;
  try {
    memory_->join(group, card_of(group_.front()).offer);
  } catch (const Error& error) {
    alone = "the memory that rank " + std::to_string(group_.front()) +
            " shares cannot be mapped from here: " + error.what();
    log(LogLevel::info, alone);  // a call that needs it tells
  }
  for (int rank : group_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    try {
      if (!alone.empty()) throw Error(Fault::memory, alone);
      join(rank, card_of(rank));
    } catch (const Error& error) {
      peer.trouble = "rank " + std::to_string(rank) + "'s memory cannot be mapped from here: " + error.what();
      unreached_.add(rank);
      if (alone.empty()) log(LogLevel::info, peer.trouble);
    }
  }
  if (!alone.empty()) memory_ = nullptr;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.window_bytes = card_of(rank).window_bytes;
    peer.displacement_unit = card_of(rank).displacement_unit;
    if (peer.reachable || !peer.trouble.empty()) continue;
    const std::string theirs = card_of(rank).device_name(), ours = card_of(me).device_name();
    if (local(rank) < 0 && why_no_network_.empty()) continue;  // reached otherwise, or not
    peer.trouble = "rank " + std::to_string(rank) +
                   (local(rank) < 0  ? " is on another node, and cannot be reached: " + why_no_network_
                    : theirs == ours ? "'s memory cannot be mapped from here: it has another user or PID namespace"
                                     : " works with the device " + theirs + ", and this rank with " + ours +
                                           ": ranks with different devices have no stream epochs with each other");
  }
}

Neighbourhood::Neighbourhood(const LocalMemory& memory, Bootstrap& bootstrap, Device& device, const Settings& settings)
    : device_(device),
      window_(static_cast<char*>(memory.base)),
      eager_bytes_(settings.eager_bytes.value_or(device.preferred_eager_bytes())),
      depth_(settings.mailbox_slots),
      me_(bootstrap.rank()),
      locals_(static_cast<std::size_t>(bootstrap.size()), -1),
      peers_(static_cast<std::size_t>(bootstrap.size())) {
  for (int rank = 0; rank < size(); ++rank)
    if (bootstrap.same_node(rank)) locals_[static_cast<std::size_t>(rank)] = locals_count_++;
  const Card mine = make_card(memory, bootstrap, settings);
  std::vector<Card> cards = bootstrap.allgather(mine);
  check_cards(cards, bootstrap);
  make_group(cards, bootstrap);
  join(cards, me_);
  needs_guards_ = decide_guards(cards, bootstrap);
  for (int rank = 0; rank < size(); ++rank)
    if (rank != me_ && mine.place != 0 && cards[static_cast<std::size_t>(rank)].place == mine.place) ++sharers_;
  if (needs_guards_) waiting_room_ = nullptr;
  if (waiting_room_) waiting_room_->share(sharers_);
}

void Neighbourhood::agree(Bootstrap& bootstrap) {
  /// What ranks tell each other last.
  struct Last {
    NodeExtent place;  ///< of the least rank of each group
    Unreached unreached;
  };
  static_assert(sizeof(Last) <= 160, "it is small");
  Last mine{{}, unreached_};
  if (memory_ && group_.front() == me_) mine.place = memory_->choose_extent();
  const std::vector<Last> all = bootstrap.allgather(mine);
  if (memory_) memory_->open(all[static_cast<std::size_t>(group_.front())].place);
  // A pair works only when each side can map the other.
  for (int rank : group_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.reachable || !all[static_cast<std::size_t>(rank)].unreached.has(me_)) continue;
    peer.reachable = false;
    peer.trouble = "rank " + std::to_string(rank) + " cannot map the memory of this rank";
  }
  if (!needs_guards_) return;
  // Guards count from the start, so all have to be ready.
  unsigned char ready = 1;
  try {
    use();
    PairWords words{};
    words.credit = depth_;
    fill_words(words);
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
    ready = 0;
  }
  const std::vector<unsigned char> all_ready = bootstrap.allgather(ready);
  const auto not_ready = std::find(all_ready.begin(), all_ready.end(), 0);
  if (not_ready != all_ready.end())
    throw Error(Fault::memory,
                "rank " + std::to_string(not_ready - all_ready.begin()) + " cannot map the window's shared memory");
}

/// The headers: of this rank, and so of all.
void Neighbourhood::use() {
  if (in_use_ || !memory_) return;
  char* const own = memory_->header(local(me_));
  for (int rank : group_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.reachable) continue;
    char* const there = memory_->header(local(rank));
    peer.words = reinterpret_cast<PairWords*>(own + NodeMemory::words_offset(local(rank)));
    peer.there = reinterpret_cast<PairWords*>(there + NodeMemory::words_offset(local(me_)));
    peer.bell = reinterpret_cast<Bell*>(there);
  }
  header_.store(reinterpret_cast<Header*>(own), std::memory_order_release);
  in_use_ = true;
}

void Neighbourhood::map_mailboxes(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.outbox.lines = reinterpret_cast<Line*>(memory_->mailbox(local(rank), local(me_)));
  peer.inbox.lines = reinterpret_cast<Line*>(memory_->mailbox(local(me_), local(rank)));
}

void Neighbourhood::connect_origin(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.is_origin) return;
  use();
  if (peer.reachable && !peer.relayed) {
    map_mailboxes(rank);
    peer.staging = memory_->own_staging();
  }
  peer.is_origin = true;
}

void Neighbourhood::connect_target(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.is_target) return;
  use();
  if (peer.reachable && !peer.relayed) {
    map_mailboxes(rank);
    if (peer.window_bytes > 0) peer.direct = memory_->window(local(rank));
  }
  peer.is_target = true;
}

/// All ranks of the node alike, for both sides of a pair count. Also those that have a GPU to themselves: a guard costs
/// them a few microseconds, and the kernel of a rank that waits for one without would keep a shared GPU.
bool Neighbourhood::decide_guards(const std::vector<Card>& cards, const Bootstrap& bootstrap) const {
  // Guards know nothing of networks.
  if (bootstrap.spans_nodes()) return false;
  for (const Card& card : cards)
    if (card.waits != Waits::automatic) return card.waits == Waits::memory;
  return share_in_turns(cards) || lack_places(cards);
}

/// Ranks of a node that run on one GPU, and not at once.
bool Neighbourhood::share_in_turns(const std::vector<Card>& cards) {
  std::vector<std::uint64_t> places;
  for (const Card& card : cards)
    if (card.wants_guards && card.place != 0) places.push_back(card.place);
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) != places.end();
}

/// Some rank has no places left for kernels that wait, and all can do without.
bool Neighbourhood::lack_places(const std::vector<Card>& cards) {
  if (!std::all_of(cards.begin(), cards.end(), [](const Card& card) { return card.has_guards; })) return false;
  return std::any_of(cards.begin(), cards.end(), [&](const Card& card) {
    const auto sharers =
        std::count_if(cards.begin(), cards.end(), [&](const Card& other) { return other.place == card.place; });
    return card.rooms > 0 && card.rooms_taken > WaitingRoom::most(card.rooms, static_cast<std::uint32_t>(sharers));
  });
}

PairWords Neighbourhood::retired_words() {
  PairWords words{};
  words.credit = words.pending = open_guard;
  words.own.opened.epochs = retired_epoch;
  std::fill_n(words.own.sent.epochs, most_parts, retired_epoch);
  std::fill_n(words.own.closed.epochs, most_parts, retired_epoch);
  return words;
}

void Neighbourhood::retire() {
  if (in_use_) fill_words(retired_words());
}

void Neighbourhood::fill_words(const PairWords& words) {
  if (!memory_) return;
  const std::vector<PairWords> all(static_cast<std::size_t>(locals_count_), words);
  device_.write(memory_->header(local(me_)) + NodeMemory::words_offset(0), all.data(), all.size() * sizeof words);
}

void Neighbourhood::say_farewell(Farewell farewell) {
  if (memory_ && group_.size() > 1) memory_->say_farewell(farewell);
}

Farewell Neighbourhood::farewell_of(int rank) const noexcept {
  if (!memory_ || !peer(rank).reachable || peer(rank).relayed) return Farewell::none;
  try {
    return memory_->farewell_of(local(rank));
  } catch (const std::exception&) {
    return Farewell::none;
  }
}

Neighbourhood::~Neighbourhood() = default;

}  // namespace mpix
