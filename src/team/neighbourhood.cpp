// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "team/neighbourhood.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace mpix {
namespace {

/// Puts that are no whole packs, a few of them.
constexpr std::uint32_t packs_not_full = 64;

}  // namespace

/// Two lines for the descriptor of a put, and one for every 8 bytes. What does not fit goes direct. A direct put into
/// staging memory needs its descriptor, and a last payload line may be partly filled: three lines a put.
std::uint32_t slot_lines_for(std::size_t window_bytes, std::uint32_t staged_puts, std::size_t eager_bytes) {
  const std::size_t payload = std::min(eager_bytes, window_bytes);
  const std::size_t overhead = staged_puts > 0 ? 3 * std::size_t{staged_puts} : payload / 16;
  return static_cast<std::uint32_t>((4 + payload / 8 + overhead + 7) / 8 * 8 + most_parts);
}

/// What ranks of a node tell each other when a window is created.
struct Neighbourhood::NodeCard {
  std::uint64_t window_bytes;
  std::uint64_t processor;  ///< see Device
  std::uint32_t slot_lines, slot_packs;
  std::uint32_t rooms, rooms_taken;  ///< see WaitingRoom; 0: kernels take none
  bool has_guards, wants_guards;
  bool staged;
  bool usable;  ///< this rank got its memory
  union {
    NodeOffer offer;                  ///< what it shares; or, where it is not usable,
    char trouble[sizeof(NodeOffer)];  ///< why not
  };

  Ring ring(std::uint32_t depth) const { return {nullptr, depth, slot_lines, slot_packs}; }
  NodeRank as_node_rank(int local, std::uint32_t depth) const {
    return {local, ring(depth).bytes(), window_bytes, staged};
  }
};

Neighbourhood::NodeCard Neighbourhood::make_card(const LocalMemory& memory) {
  NodeCard card{};
  card.window_bytes = memory.bytes;
  try {
    device_.use_memory_of(memory.base, memory.bytes);
    if (memory.displacement_unit > UINT32_MAX) throw Error(Fault::argument, "the displacement unit is above 4 GiB");
    NodeShape shape;
    if (memory.bytes > 0) shape.around = device_.shareable(memory.base);
    if (shape.around && static_cast<char*>(memory.base) + memory.bytes > shape.around->base + shape.around->bytes)
      shape.around = std::nullopt;
    staged_ = card.staged = memory.bytes > 0 && !shape.around;
    slot_lines_ = card.slot_lines = slot_lines_for(memory.bytes, staged_ ? max_staged_puts : 0, likely_bytes());
    const std::size_t most_packed = std::min(eager_bytes_, memory.bytes);
    if (most_packed > packs_above_)
      slot_packs_ = card.slot_packs = packs_for(static_cast<std::uint32_t>(most_packed)) + packs_not_full;
    shape.me = card.as_node_rank(local(me_), depth_);
    shape.locals = static_cast<int>(team_->locals().size());
    shape.window = memory.base;
    shape.is_least = team_->group().front() == me_;
    shape.team = team_->memory();
    memory_ = device_.new_node_memory(shape);
    card.offer = memory_->offer();
    card.processor = device_.processor();
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

void Neighbourhood::join(int rank, const NodeCard& card) {
  Peer& peer = this->peer(rank);
  memory_->join(card.as_node_rank(local(rank), depth_), card.offer);
  peer.outbox = card.ring(depth_);
  peer.inbox = Ring{nullptr, depth_, slot_lines_, slot_packs_};
  peer.staged = card.staged;
  peer.eager_bytes = eager_bytes_;
  // Within a GPU packs have not been tried.
  const bool is_elsewhere = card.processor == 0 || card.processor != device_.processor();
  if (card.slot_packs > 0 && is_elsewhere && device_.carries_packs(card.processor)) peer.packs_above = packs_above_;
  peer.most_puts = card.staged ? max_staged_puts : 0;
  peer.reachable = true;
}

void Neighbourhood::note_group(const std::vector<NodeCard>& cards, std::vector<NodeRank>& group) const {
  group.clear();
  for (int rank : team_->group())
    group.push_back(cards[static_cast<std::size_t>(local(rank))].as_node_rank(local(rank), depth_));
}

/// `group`: room for it.
void Neighbourhood::join(const std::vector<NodeCard>& cards, std::vector<NodeRank>& group) {
  const auto card_of = [&](int rank) -> const NodeCard& { return cards[static_cast<std::size_t>(local(rank))]; };
  const int least = team_->group().front();
  std::string alone;
  try {
    note_group(cards, group);
    memory_->join(group, card_of(least).offer);
  } catch (const Error& error) {
    alone = "the memory that rank " + std::to_string(least) + " shares cannot be mapped from here: " + error.what();
    log(LogLevel::info, alone);  // a call that needs it tells
  }
  for (int rank : team_->group()) {
    Peer& peer = this->peer(rank);
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
  name_trouble();
}

/// Of the ranks of this node that are not reached, and for another reason than that they failed to be.
void Neighbourhood::name_trouble() {
  const std::string& ours = team_->device_of(local(me_));
  for (int rank : team_->locals()) {
    Peer& peer = this->peer(rank);
    if (peer.reachable || !peer.trouble.empty()) continue;
    const std::string& theirs = team_->device_of(local(rank));
    peer.trouble = "rank " + std::to_string(rank) +
                   (theirs == ours ? "'s memory cannot be mapped from here: it has another user or PID namespace"
                                   : " works with the device " + theirs + ", and this rank with " + ours +
                                         ": ranks with different devices have no stream epochs with each other");
  }
}

Neighbourhood::Neighbourhood(const LocalMemory& memory, std::shared_ptr<const Team> team, Bootstrap& bootstrap,
                             Device& device, const Settings& settings)
    : team_(std::move(team)),
      device_(device),
      window_(static_cast<char*>(memory.base)),
      eager_bytes_(settings.eager_bytes.value_or(device.preferred_eager_bytes())),
      packs_above_(device.packs_above()),
      depth_(settings.mailbox_slots),
      me_(team_->rank()),
      window_bytes_(memory.bytes),
      displacement_unit_(memory.displacement_unit),
      peers_(team_->locals().size()) {
  if (team_->foresees_window()) {
    own_card_ = std::make_unique<NodeCard>(make_card(memory));
    if (!own_card_->usable) throw Error(Fault::memory, own_card_->trouble);
    return;
  }
  const std::vector<NodeCard> cards = bootstrap.node_allgather(make_card(memory), team_->locals().size());
  const auto unusable = std::find_if(cards.begin(), cards.end(), [](const NodeCard& card) { return !card.usable; });
  if (unusable != cards.end())
    throw Error(Fault::memory, "rank " +
                                   std::to_string(team_->locals()[static_cast<std::size_t>(unusable - cards.begin())]) +
                                   ": " + unusable->trouble);
  std::vector<NodeRank> group;
  join(cards, group);
  needs_guards_ = decide_guards(cards, settings);
  const NodeCard& mine = cards[static_cast<std::size_t>(local(me_))];
  sharers_ = static_cast<std::uint32_t>(std::count_if(cards.begin(), cards.end(), [&](const NodeCard& card) {
    return mine.processor != 0 && card.processor == mine.processor;
  }));
  sharers_ = std::max(sharers_, 1u);
  if (needs_guards_) waiting_room_ = nullptr;
  if (waiting_room_) waiting_room_->share(sharers_);
}

// ---- foreseen windows --------------------------------------------------------------------------------

/// The same on all ranks.
bool Neighbourhood::is_foreseeable(const std::vector<WindowCard>& cards) const {
  if (!memory_ || !memory_->takes_place() || needs_guards_ || team_->group().size() != cards.size()) return false;
  const WindowCard& least = cards.front();
  return std::none_of(cards.begin(), cards.end(), [&](const WindowCard& card) {
    return card.misses_some || card.shares_window || card.bytes > least.bytes || card.slot_lines > least.slot_lines ||
           card.slot_packs > least.slot_packs || card.memory_id != least.memory_id;
  });
}

void Neighbourhood::foresee(const std::vector<NodeRank>& group, WindowCard& card) {
  if (team_->group().front() != me_ || own_card_->offer.is_new) return;
  try {
    memory_->join(group, own_card_->offer);
    card.set_extent(memory_->choose_extent());
    card.is_placed = 1;
  } catch (const Error&) {  // there may be room for what it is
  }
}

/// Returns nothing where it is not as foreseen: NodeCards are exchanged then, and more is to come.
std::vector<WindowCard> Neighbourhood::agree_as_foreseen(Bootstrap& bootstrap, WindowCard card) {
  // Memory first: behind the exchange no rank may fail.
  std::vector<NodeCard> node(peers_.size(), *own_card_);
  std::vector<NodeRank> group;
  note_group(node, group);
  card.memory_id = own_card_->offer.id;
  foresee(group, card);
  std::vector<WindowCard> cards = bootstrap.allgather(card);
  const bool is_as_foreseen = cards.front().is_placed && is_foreseeable(cards);
  if (is_as_foreseen) {
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      node[rank].window_bytes = cards[rank].bytes;
      node[rank].slot_lines = cards[rank].slot_lines;
      node[rank].slot_packs = cards[rank].slot_packs;
      node[rank].staged = cards[rank].bytes > 0;
    }
  } else {
    node = bootstrap.allgather(*own_card_);
    cards.clear();
  }
  join(node, group);
  own_card_ = nullptr;
  return cards;
}

// ------------------------------------------------------------------------------------------------------

std::vector<WindowCard> Neighbourhood::agree(Bootstrap& bootstrap, WindowCard card) {
  card.bytes = window_bytes_;
  card.displacement_unit = static_cast<std::uint32_t>(displacement_unit_);
  card.shares_window = window_bytes_ > 0 && !staged_;
  card.slot_lines = slot_lines_;
  card.slot_packs = slot_packs_;
  const int least = team_->group().front();
  std::vector<WindowCard> cards;
  const bool foreseen = own_card_ != nullptr;
  if (foreseen) cards = agree_as_foreseen(bootstrap, card);
  const bool missed = foreseen && cards.empty();
  if (cards.empty()) {
    card.misses_some = !unreached_.empty();
    if (memory_ && least == me_) card.set_extent(memory_->choose_extent());
    cards = bootstrap.allgather(card);
  }
  const auto card_of = [&](int rank) -> const WindowCard& { return cards[static_cast<std::size_t>(rank)]; };
  int& foreseeable = team_->memory()->foreseeable_in_a_row;
  foreseeable = !missed && is_foreseeable(cards) ? std::min(foreseeable + 1, Team::windows_to_foresee) : 0;
  note_sizes(cards);
  const bool all_joined =
      std::none_of(team_->group().begin(), team_->group().end(), [&](int rank) { return card_of(rank).misses_some; });
  if (memory_) memory_->open(card_of(least).extent(), all_joined);
  drop_pairs(cards, bootstrap);
  if (needs_guards_) make_ready(bootstrap);
  return cards;
}

void Neighbourhood::note_sizes(const std::vector<WindowCard>& cards) {
  const auto card_of = [&](int rank) -> const WindowCard& { return cards[static_cast<std::size_t>(rank)]; };
  for (int rank : team_->locals()) {
    peer(rank).window_bytes = card_of(rank).bytes;
    peer(rank).displacement_unit = card_of(rank).displacement_unit;
  }
  if (!team_->spans_nodes()) return;
  bytes_.emplace(cards.size(), [&](std::size_t rank) { return card_of(static_cast<int>(rank)).bytes; });
  units_.emplace(cards.size(), [&](std::size_t rank) { return card_of(static_cast<int>(rank)).displacement_unit; });
}

/// A pair works only when each side can map the other. Hardly ever does a rank have something to tell here.
void Neighbourhood::drop_pairs(const std::vector<WindowCard>& cards, Bootstrap& bootstrap) {
  if (std::none_of(cards.begin(), cards.end(), [](const WindowCard& card) { return card.misses_some; })) return;
  const std::vector<Unreached> all = bootstrap.allgather(unreached_);
  for (int rank : team_->group()) {
    Peer& peer = this->peer(rank);
    if (!peer.reachable || !all[static_cast<std::size_t>(rank)].has(me_)) continue;
    peer.reachable = false;
    peer.trouble = "rank " + std::to_string(rank) + " cannot map the memory of this rank";
  }
}

/// Guards count from the start, so all have to be ready.
void Neighbourhood::make_ready(Bootstrap& bootstrap) {
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
  for (int rank : team_->group()) {
    Peer& peer = this->peer(rank);
    if (!peer.reachable) continue;
    char* const there = memory_->header(local(rank));
    peer.words = reinterpret_cast<PairWords*>(own + NodeMemory::words_offset(local(rank)));
    peer.there = reinterpret_cast<PairWords*>(there + NodeMemory::words_offset(local(me_)));
    peer.bell = reinterpret_cast<Bell*>(there);
  }
  header_.store(reinterpret_cast<Header*>(own), std::memory_order_release);
  in_use_ = true;
}

Peer& Neighbourhood::named(int rank) {
  if (same_node(rank)) return peer(rank);
  const auto [at, is_new] = elsewhere_.try_emplace(rank);
  if (is_new) {
    at->second.window_bytes = (*bytes_)[rank];
    at->second.displacement_unit = (*units_)[rank];
  }
  return at->second;
}

void Neighbourhood::map_mailboxes(int rank) {
  Peer& peer = this->peer(rank);
  peer.outbox.lines = reinterpret_cast<Line*>(memory_->mailbox(local(rank), local(me_)));
  peer.inbox.lines = reinterpret_cast<Line*>(memory_->mailbox(local(me_), local(rank)));
}

void Neighbourhood::connect_origin(int rank) {
  Peer& peer = named(rank);
  if (peer.is_origin) return;
  use();
  if (peer.reachable && !peer.relayed) {
    map_mailboxes(rank);
    peer.staging = memory_->own_staging();
  }
  peer.is_origin = true;
}

void Neighbourhood::connect_target(int rank) {
  Peer& peer = named(rank);
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
bool Neighbourhood::decide_guards(const std::vector<NodeCard>& cards, const Settings& settings) const {
  // Guards know nothing of networks.
  if (team_->spans_nodes()) return false;
  if (settings.waits != Waits::automatic) return settings.waits == Waits::memory;
  return share_in_turns(cards) || lack_places(cards);
}

/// Ranks of a node that run on one GPU, and not at once.
bool Neighbourhood::share_in_turns(const std::vector<NodeCard>& cards) {
  std::vector<std::uint64_t> processors;
  for (const NodeCard& card : cards)
    if (card.wants_guards && card.processor != 0) processors.push_back(card.processor);
  std::sort(processors.begin(), processors.end());
  return std::adjacent_find(processors.begin(), processors.end()) != processors.end();
}

/// Some rank has no places left for kernels that wait, and all can do without.
bool Neighbourhood::lack_places(const std::vector<NodeCard>& cards) {
  if (!std::all_of(cards.begin(), cards.end(), [](const NodeCard& card) { return card.has_guards; })) return false;
  return std::any_of(cards.begin(), cards.end(), [&](const NodeCard& card) {
    const auto sharers = std::count_if(cards.begin(), cards.end(),
                                       [&](const NodeCard& other) { return other.processor == card.processor; });
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
  const std::vector<PairWords> all(team_->locals().size(), words);
  device_.write(memory_->header(local(me_)) + NodeMemory::words_offset(0), all.data(), all.size() * sizeof words);
}

void Neighbourhood::say_farewell(Farewell farewell) {
  if (memory_ && team_->group().size() > 1) memory_->say_farewell(farewell);
}

Farewell Neighbourhood::farewell_of(int rank) const noexcept {
  if (!memory_ || !same_node(rank) || !peer(rank).reachable) return Farewell::none;
  try {
    return memory_->farewell_of(local(rank));
  } catch (const std::exception&) {
    return Farewell::none;
  }
}

Neighbourhood::~Neighbourhood() = default;

}  // namespace mpix
