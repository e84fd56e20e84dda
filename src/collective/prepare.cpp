// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The memory of a communicator for collectives: made once, by all ranks together.
#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "collective/collectives_memory.h"
#include "collective/tree.h"
#include "team/differing.h"

namespace mpix {
namespace {

constexpr std::uint64_t most_lines = 128 * 1024;  ///< of a place: 1 MiB of data
constexpr std::uint64_t line_unit = 2 * most_parts;
constexpr std::uint64_t most_staged = 1024 * 1024;  ///< of what a rank gives at once

bool is_led_by_service(CollectiveWay way) { return way == CollectiveWay::staged || way == CollectiveWay::copies; }

}  // namespace

struct Collectives::Card {
  std::uint64_t processor, scratch, table;
  std::uint32_t way, selection, blocks, rounds_above;
  RoomUse room;  ///< without multiprocessors: kernels take no places
  bool asks_scratch, reaches_node, reaches_others, prefers_guards, has_guards, has_cores;
};

CollectivePlaces Collectives::choose_places(Bootstrap& bootstrap, const Settings& settings) {
  Card card{};
  card.processor = device_.processor();
  card.asks_scratch = settings.collective_scratch.has_value();
  card.scratch = settings.collective_scratch.value_or(device_.preferred_scratch_bytes());
  card.rounds_above = settings.rail_rounds_above;
  card.way = static_cast<std::uint32_t>(ways_.way);
  card.selection = static_cast<std::uint32_t>(ways_.selection);
  card.blocks = ways_.blocks;
  card.table = ways_.table ? ways_.table->fingerprint() : 0;
  memory_->room = device_.new_call_room();
  if (memory_->room) card.room = memory_->room->use();
  card.prefers_guards = device_.wants_guards_where_shared();
  card.has_guards = device_.has_guards();
  card.has_cores = has_cores_to_spare(static_cast<int>(team_->locals().size()));
  card.reaches_node = team_->group().size() == team_->locals().size();
  card.reaches_others = true;
  for (int other = 0; other < size(); ++other)
    card.reaches_others = card.reaches_others && (team_->same_node(other) || team_->far(other).reachable);
  const std::vector<Card> cards = bootstrap.allgather(card);
  // First, as presets differ between devices, too.
  if (!std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.reaches_node; }))
    throw Error(Fault::unsupported, "the ranks cannot reach each other's memory: some have other name spaces");
  const auto compare = [&](const char* what, auto value_of) {
    const std::string by_rank = differing(cards, value_of);
    if (!by_rank.empty()) throw Error(Fault::argument, std::string(what) + " differs between the ranks: " + by_rank);
  };
  // Presets of devices differ, and then the least holds for all.
  if (std::any_of(cards.begin(), cards.end(), [](const Card& one) { return one.asks_scratch; }))
    compare("MPIX_COLL_SCRATCH", [](const Card& one) { return std::to_string(one.scratch); });
  compare("MPIX_COLL, or the info key mpix_coll,", [](const Card& one) {
    for (const auto& [name, way] : collective_way_names)
      if (static_cast<std::uint32_t>(way) == one.way) return std::string(name);
    return std::string("unknown");
  });
  compare("MPIX_COLL_SELECT, or the info key mpix_coll_select,", [](const Card& one) {
    static const char* const names[] = {"static", "model", "dynamic"};
    return std::string(names[one.selection]);
  });
  compare("MPIX_COLL_ROUNDS_ABOVE", [](const Card& one) { return std::to_string(one.rounds_above); });
  compare("the info key mpix_coll_blocks", [](const Card& one) { return std::to_string(one.blocks); });
  compare("the table of MPIX_COLL_TABLE", [](const Card& one) {
    return one.table == 0 ? std::string("none") : "one of fingerprint " + std::to_string(one.table);
  });
  if (!std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.reaches_others; }))
    throw Error(Fault::unsupported, "ranks of other nodes cannot be reached: " + team_->why_not());
  scratch_ = card.scratch;
  for (const Card& one : cards) scratch_ = std::min(scratch_, one.scratch);
  for (const Card& one : cards)
    if (one.processor != 0)
      sharers_ = std::max(sharers_,
                          static_cast<std::uint32_t>(std::count_if(cards.begin(), cards.end(), [&](const Card& other) {
                            return other.processor == one.processor;
                          })));
  share_in_turns_ =
      sharers_ > 1 && std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.prefers_guards; });
  // The service has to have a core: with one a rank calls took as long as turns.
  stages_in_turns_ = share_in_turns_ && std::all_of(cards.begin(), cards.end(),
                                                    [](const Card& one) { return one.has_guards && one.has_cores; });
  lacks_room_ = !take_room(cards, settings.waits);
  if (is_led_by_service(ways_.way) &&
      !std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.has_guards; }))
    throw Error(Fault::unsupported,
                "MPIX_COLL=staged or copies: streams have no memory operations here that graphs take");
  CollectivePlaces places{};
  places.ranks = static_cast<std::uint32_t>(team_->locals().size());
  std::vector<std::uint64_t> devices;
  for (const Card& one : cards) devices.push_back(one.processor);
  places.packs = choose_pack_places(bootstrap, devices, places.ranks);
  plant_trees(devices);
  // A part of it for lines, one for packs, and what is left for what is sent and received through memory of the
  // library.
  const std::uint64_t each = scratch_ / 3 / (2 * sizeof(Line) * places.ranks);
  places.lines = static_cast<std::uint32_t>(std::max(line_unit, rounded_down(std::min(most_lines, each), line_unit)));
  const std::uint64_t for_packs = std::uint64_t{2} * places.ranks * places.packs * sizeof(Pack);
  places.scratch_bytes = std::max<std::uint64_t>(rounded_down(scratch_ / 3 - for_packs / 2, piece_unit * places.ranks),
                                                 piece_unit * places.ranks);
  return places;
}

/// False: there is none, and the calls can do without. `waits`: of all ranks, as Team compares it.
bool Collectives::take_room(const std::vector<Card>& cards, Waits waits) {
  most_sharers_ = sharers_;
  for (const Card& one : cards) most_sharers_ = std::max(most_sharers_, one.room.sharers);
  if (size() == 1) {  // which waits for nobody
    memory_->room.reset();
    blocks_ = ways_.blocks > 0 ? ways_.blocks : most_blocks;
    return true;
  }
  const std::uint32_t places_of_a_block = most_sharers_ > 1 ? 1 : 2;
  std::uint32_t least = UINT32_MAX;
  for (const Card& one : cards)
    if (one.room.multiprocessors > 0) least = std::min(least, one.room.blocks_left(most_sharers_) / places_of_a_block);
  // Most of what is left, and something for the next one.
  blocks_ = least > 1 ? static_cast<std::uint32_t>(std::uint64_t{least} * 2 / 3) : least;
  if (blocks_ > 8) blocks_ -= blocks_ % 8;  // parts of data that lie well
  blocks_ = std::min(blocks_, most_blocks);
  if (ways_.blocks > 0) blocks_ = std::min(blocks_, 2 * ways_.blocks);  // of two calls in a row
  const bool can_do_without = waits != Waits::kernel && !team_->spans_nodes() &&
                              std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.has_guards; });
  const bool has_room = blocks_ > 0;
  if (!can_do_without) blocks_ = std::max(blocks_, 1u);  // of places that are not there: see limits.md
  if (memory_->room) memory_->room->settle(blocks_ * places_of_a_block, most_sharers_);
  return has_room || !can_do_without;
}

/// `devices`: by rank of the communicator.
void Collectives::plant_trees(const std::vector<std::uint64_t>& devices) {
  const auto ranks = static_cast<std::uint32_t>(team_->locals().size());
  if (ways_.way < CollectiveWay::gsb || ways_.way > CollectiveWay::btb_gsb || ranks == 1 || ranks > TreePlace::most)
    return;
  const TreeShape shape{ways_.way == CollectiveWay::btb || ways_.way == CollectiveWay::btb_gsb,
                        ways_.way == CollectiveWay::btb || ways_.way == CollectiveWay::gsb_btb};
  std::vector<std::uint64_t> gpus;
  for (const int rank : team_->locals()) gpus.push_back(devices[static_cast<std::size_t>(rank)]);
  for (std::uint32_t root = 0; root < ranks; ++root)
    trees_.push_back(place_in_tree(shape, gpus, static_cast<std::uint32_t>(team_->local(rank())), root));
}

/// Of a place; 0: not all links carry packs, or there is no memory for them.
std::uint32_t Collectives::choose_pack_places(Bootstrap& bootstrap, const std::vector<std::uint64_t>& devices,
                                              std::uint32_t ranks) {
  pack_form_ = team_->spans_nodes() || most_sharers_ > 1 ? Device::PackForm{} : device_.pack_form(ranks);
  if (pack_form_.groups == 0) return 0;
  const bool all_carry = std::all_of(devices.begin(), devices.end(),
                                     [this](std::uint64_t processor) { return device_.carries_packs(processor); });
  const std::vector<std::uint32_t> carry = bootstrap.allgather(std::uint32_t{all_carry});
  if (!std::all_of(carry.begin(), carry.end(), [](std::uint32_t one) { return one != 0; })) return 0;
  const std::uint64_t unit = std::uint64_t{pack_form_.groups} * pack_form_.turns;
  return static_cast<std::uint32_t>(
      std::min(most_blocks * unit, rounded_down(scratch_ / 6 / (2 * ranks * sizeof(Pack)), unit)));
}

Collectives::Collectives(std::shared_ptr<const Team> team, Bootstrap& bootstrap, Device& device,
                         OperationBudget* budget, const Settings& settings, Ways ways, const std::string& name)
    : team_(std::move(team)),
      device_(device),
      unmaps_later_(device),
      ways_(std::move(ways)),
      memory_(std::make_shared<Memory>(device)) {
  Collective& c = prototype_;
  c.places = choose_places(bootstrap, settings);
  device_.prepare_collectives();
  c.me = static_cast<std::uint32_t>(team_->local(rank()));
  const std::size_t ranks = c.places.ranks;
  // On a GPU that ranks share all lines come to the same memory: 8 ranks on an H100, captured, 64 KiB by lines 22.3,
  // direct 26.1, 128 KiB 36 and 27.5; 16 ranks, 32 KiB 41 and 38, 64 KiB 75 and 38.
  borders_.fill(device_.preferred_line_bytes(c.ranks()) / (sharers_ > 1 ? 2 : 1));
  c.mine = memory_->base = device_.allocate(c.places.all()).base;
  const std::vector<CollectiveState> states(most_parts, [] {
    CollectiveState state{};
    state.step = state.call = 1;
    state.parts = 1;
    return state;
  }());
  device_.write(memory_->base + c.places.states(), states.data(), states.size() * sizeof states[0]);
  memory_->attached = device_.allocate(ranks * most_attached * sizeof(char*)).base;
  c.attached = reinterpret_cast<char* const*>(memory_->attached);

  const auto all = bootstrap.node_allgather(device_.export_memory(memory_->base), ranks);
  std::vector<char*> segments;
  for (std::size_t i = 0; i < ranks; ++i) {
    segments.push_back(i == c.me ? memory_->base : device_.import_memory(all[i]));
    if (i != c.me) memory_->imports.push_back(segments.back());
    if (i < Collective::most_near) c.near[i] = segments.back();
  }
  memory_->segments = device_.upload(segments.data(), segments.size() * sizeof(char*));
  c.far = static_cast<char* const*>(memory_->segments.get());
  const std::size_t notes = ranks + static_cast<std::size_t>(size());
  memory_->words = device_.allocate_pinned(sizeof(CollectiveWords) + notes * sizeof(std::uint64_t));
  c.host = reinterpret_cast<CollectiveWords*>(memory_->words.get());
  memory_->reports = std::make_unique<CollectiveReports>(c.host, team_->locals(), rank(), size(), name, settings,
                                                         device_.hang_advice());
  // Guards know nothing of networks. MPIX_WAIT is the same on all ranks: Team compares it.
  const bool waits_in_memory_ops =
      settings.waits == Waits::automatic ? share_in_turns_ || lacks_room_ : settings.waits == Waits::memory;
  if (waits_in_memory_ops && !team_->spans_nodes()) memory_->guards = std::make_unique<CallGuards>(device_, c);
  if (memory_->guards) memory_->room.reset();
  if (is_led_by_service(ways_.way) || stages_in_turns_) share_staged_memory(bootstrap);
  if (memory_->led && ways_.way == CollectiveWay::copies) memory_->led->prepare_copies(segments, memory_->maps);
  if (memory_->led)
    memory_->reports->set_watch(
        {[led = memory_->led.get()](std::size_t rank) { led->noted_wait(static_cast<std::uint32_t>(rank)); },
         [led = memory_->led.get()](double seconds) { return led->stuck(seconds); }});
  if (!memory_->guards) {
    memory_->notes = std::make_unique<NodeNotes>(device_, std::move(segments), c.places.note(), c.me,
                                                 memory_->led ? memory_->led->memory() : StagedMemory{});
    memory_->reports->set_notes(memory_->notes.get());
  }
  if (team_->spans_nodes())
    memory_->rails =
        std::make_unique<Rails>(team_, bootstrap, device_, *budget, Rails::Size{scratch_, settings.rail_rounds_above},
                                c.host, *memory_->reports, *memory_->notes);
  // All have filled theirs, and mapped the others'.
  (void)bootstrap.allgather(std::uint64_t{0});
  asked_.emplace(*this);
}

void Collectives::share_staged_memory(Bootstrap& bootstrap) {
  const std::uint64_t room = std::max<std::uint64_t>(
      std::min<std::uint64_t>(most_staged, rounded_down(scratch_ / 4, piece_unit)), line_unit * prototype_.ranks());
  std::string why_not;
  memory_->led = LedCalls::make(bootstrap, device_, team_->locals(), prototype_, room, why_not);
  if (memory_->led) return;
  if (is_led_by_service(ways_.way))
    throw Error(Fault::memory, "the ranks cannot share memory of the host" + (why_not.empty() ? "" : ": " + why_not));
}

}  // namespace mpix
