// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "collective/between_nodes.h"
#include "collective/call_guards.h"
#include "collective/node_notes.h"
#include "collective/rails.h"
#include "collective/staged_calls.h"
#include "collective/tree.h"
#include "device/collective_launch.h"
#include "team/differing.h"

namespace mpix {
namespace {

constexpr std::uint64_t most_lines = 128 * 1024;  ///< of a place: 1 MiB of data
constexpr std::uint64_t line_unit = 2 * most_parts;
constexpr std::uint64_t most_staged = 1024 * 1024;  ///< of what a rank gives at once

bool is_led_by_service(CollectiveWay way) { return way == CollectiveWay::staged || way == CollectiveWay::copies; }

}  // namespace

struct Collectives::Card {
  std::uint64_t place, scratch, table;
  std::uint32_t way, selection, blocks, most_blocks;
  bool reaches_node, reaches_others, prefers_guards, has_guards, has_cores;
};

struct Collectives::Memory {
  explicit Memory(Device& to) : device(to) {}
  ~Memory() {
    rails.reset();
    if (reports) reports->set_watch({});
    staged.reset();
    reports.reset();
    guards.reset();
    for (char* import : imports) device.close_import(import);
    if (attached) device.release(attached);
    if (base) device.release(base);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device& device;
  char* base = nullptr;
  char* attached = nullptr;  ///< most_attached addresses by rank
  std::vector<char*> imports;
  std::shared_ptr<const void> segments;  ///< by rank
  std::shared_ptr<char> words;
  std::unique_ptr<CallGuards> guards;  ///< null: kernels wait
  std::unique_ptr<NodeNotes> notes;    ///< null: kernels do not wait, and calls by guards are heard by all
  std::unique_ptr<CollectiveReports> reports;
  AttachedMaps maps;
  std::unique_ptr<StagedCalls> staged;  ///< null: the service leads none
  std::unique_ptr<Rails> rails;         ///< null: there is one node
};

CollectivePlaces Collectives::choose_places(Bootstrap& bootstrap) {
  Card card{};
  card.place = device_.place();
  card.scratch = scratch_;
  card.way = static_cast<std::uint32_t>(ways_.way);
  card.selection = static_cast<std::uint32_t>(ways_.selection);
  card.blocks = ways_.blocks;
  card.table = ways_.table ? ways_.table->fingerprint() : 0;
  card.most_blocks = device_.collective_blocks();
  card.prefers_guards = device_.wants_guards_where_shared();
  card.has_guards = device_.has_guards();
  card.has_cores = has_cores_to_spare(static_cast<int>(team_->locals().size()));
  card.reaches_node = team_->group().size() == team_->locals().size();
  card.reaches_others = true;
  for (int other = 0; other < size(); ++other)
    card.reaches_others = card.reaches_others && (team_->same_node(other) || team_->far(other).reachable);
  const std::vector<Card> cards = bootstrap.allgather(card);
  const auto compare = [&](const char* what, auto value_of) {
    std::vector<std::string> texts;
    for (const Card& one : cards) texts.push_back(value_of(one));
    const std::string by_rank = differing(texts);
    if (!by_rank.empty()) throw Error(Fault::argument, std::string(what) + " differs between the ranks: " + by_rank);
  };
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
  compare("the info key mpix_coll_blocks", [](const Card& one) { return std::to_string(one.blocks); });
  compare("the table of MPIX_COLL_TABLE", [](const Card& one) {
    return one.table == 0 ? std::string("none") : "one of fingerprint " + std::to_string(one.table);
  });
  if (!std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.reaches_others; }))
    throw Error(Fault::unsupported, "ranks of other nodes cannot be reached: " + team_->why_not());
  if (!std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.reaches_node; }))
    throw Error(Fault::unsupported,
                "the ranks cannot reach each other's memory: some have another device, or other name spaces");
  for (const Card& one : cards)
    if (one.place != 0)
      sharers_ = std::max(
          sharers_, static_cast<std::uint32_t>(std::count_if(
                        cards.begin(), cards.end(), [&](const Card& other) { return other.place == one.place; })));
  // Kernels of all ranks that share a GPU wait for each other.
  std::uint32_t most_at_once = 2 * most_blocks;
  for (const Card& one : cards) most_at_once = std::min(most_at_once, one.most_blocks);
  blocks_of_a_rank_ = std::clamp(most_at_once / sharers_, 1u, most_blocks);
  share_in_turns_ =
      sharers_ > 1 && std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.prefers_guards; });
  // The service has to have a core: with one a rank calls took as long as turns.
  stages_in_turns_ = share_in_turns_ && std::all_of(cards.begin(), cards.end(),
                                                    [](const Card& one) { return one.has_guards && one.has_cores; });
  if (is_led_by_service(ways_.way) &&
      !std::all_of(cards.begin(), cards.end(), [](const Card& one) { return one.has_guards; }))
    throw Error(Fault::unsupported,
                "MPIX_COLL=staged or copies: streams have no memory operations here that graphs take");
  CollectivePlaces places{};
  places.ranks = static_cast<std::uint32_t>(team_->locals().size());
  std::vector<std::uint64_t> devices;
  for (const Card& one : cards) devices.push_back(one.place);
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
  pack_form_ = team_->spans_nodes() || sharers_ > 1 ? Device::PackForm{} : device_.pack_form(ranks);
  if (pack_form_.groups == 0) return 0;
  const std::vector<std::uint32_t> carry = bootstrap.allgather(std::uint32_t{device_.carries_packs(devices)});
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
      scratch_(settings.collective_scratch.value_or(device.preferred_scratch_bytes())),
      memory_(std::make_shared<Memory>(device)) {
  Collective& c = prototype_;
  c.places = choose_places(bootstrap);
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
      settings.waits == Waits::automatic ? share_in_turns_ : settings.waits == Waits::memory;
  if (waits_in_memory_ops && !team_->spans_nodes()) memory_->guards = std::make_unique<CallGuards>(device_, c);
  if (is_led_by_service(ways_.way) || stages_in_turns_) share_staged_memory(bootstrap);
  if (memory_->staged && ways_.way == CollectiveWay::copies) memory_->staged->prepare_copies(segments, memory_->maps);
  if (memory_->staged)
    memory_->reports->set_watch(
        {[staged = memory_->staged.get()](std::size_t rank) { staged->noted_wait(static_cast<std::uint32_t>(rank)); },
         [staged = memory_->staged.get()](double seconds) { return staged->stuck(seconds); }});
  if (!memory_->guards) {
    memory_->notes = std::make_unique<NodeNotes>(device_, std::move(segments), c.places.note(), c.me,
                                                 memory_->staged ? memory_->staged->memory() : StagedMemory{});
    memory_->reports->set_notes(memory_->notes.get());
  }
  if (team_->spans_nodes())
    memory_->rails = std::make_unique<Rails>(team_, bootstrap, device_, *budget, scratch_, c.host, *memory_->reports,
                                             *memory_->notes);
  // All have filled theirs, and mapped the others'.
  (void)bootstrap.allgather(std::uint64_t{0});
  asked_.emplace(*this);
}

void Collectives::share_staged_memory(Bootstrap& bootstrap) {
  const std::uint64_t room = std::max<std::uint64_t>(
      std::min<std::uint64_t>(most_staged, rounded_down(scratch_ / 4, piece_unit)), line_unit * prototype_.ranks());
  std::string why_not;
  memory_->staged = StagedCalls::make(bootstrap, device_, team_->locals(), prototype_, room, why_not);
  if (memory_->staged) return;
  if (is_led_by_service(ways_.way))
    throw Error(Fault::memory, "the ranks cannot share memory of the host" + (why_not.empty() ? "" : ": " + why_not));
}

Collectives::~Collectives() {
  asked_.reset();
  close(false);
  for (Attachment& one : attachments_) unmap(one);
}

void Collectives::unmap(Attachment& attachment) noexcept {
  for (std::size_t i = 0; i < attachment.mapped.size(); ++i)
    if (attachment.mapped[i] && i != prototype_.me) device_.close_import(attachment.mapped[i]);
  attachment = Attachment{};
}

bool Collectives::has_guards() const { return memory_->guards != nullptr; }

bool Collectives::stages() const { return memory_->staged != nullptr; }

bool Collectives::is_broken() const { return memory_->reports->is_broken(); }

void Collectives::check(const Call& call) const {
  if (is_broken())
    throw Error(Fault::synchronization,
                "collectives on streams are over on this communicator: " + memory_->reports->cause());
  if (call.bytes >> CallWord::byte_bits != 0) throw Error(Fault::count, "more than 64 GiB");
  const bool sends = call.kind == CollectiveKind::bcast ? rank() == call.root : call.kind != CollectiveKind::barrier;
  const bool receives = call.kind == CollectiveKind::bcast    ? rank() != call.root
                        : call.kind == CollectiveKind::reduce ? rank() == call.root
                                                              : call.kind != CollectiveKind::barrier;
  if (call.bytes == 0) return;
  if (sends && !call.send) throw Error(Fault::buffer, "no buffer to send from");
  if (receives && !call.recv) throw Error(Fault::buffer, "no buffer to receive in");
  if (sends) device_.check_origin(call.send);
  if (receives) device_.check_origin(call.recv);
}

std::uint64_t Collectives::place_of(const void* buffer, std::size_t bytes) const {
  const auto* const begin = static_cast<const char*>(buffer);
  for (std::uint32_t i = 0; i < attachments_.size(); ++i) {
    const Attachment& one = attachments_[i];
    const auto* const base = static_cast<const char*>(one.own);
    if (one.is_used && one.bytes > 0 && begin >= base && begin + bytes <= base + one.bytes)
      return place_word(i, static_cast<std::uint64_t>(begin - base));
  }
  return not_attached;
}

Collectives::Went Collectives::enqueue_on_node(const Call& call, const InStream& in, CollectiveWay way) {
  CollectiveLaunch launch;
  launch.captured = in.captured;
  launch.keep = in.keep;
  Collective& c = launch.call = prototype_;
  c.kind = call.kind;
  c.operation = call.operation;
  c.element = call.element;
  c.root = static_cast<std::uint32_t>(call.root);
  c.bytes = call.bytes;
  c.send = static_cast<const char*>(call.send);
  c.recv = static_cast<char*>(call.recv);
  c.function = call.function;
  c.context = call.context;
  if (c.kind == CollectiveKind::alltoall || c.kind == CollectiveKind::reduce_scatter) c.send_stride = c.bytes;
  if (c.kind == CollectiveKind::alltoall || c.kind == CollectiveKind::allgather) c.recv_stride = c.bytes;
  c.word = in.word;
  if (way == CollectiveWay::automatic) way = ways_.way;
  if (way == CollectiveWay::copies) {
    if (is_copied(c)) {
      enqueue_copied(c, call.in_place, in);
      return Went::copied;
    }
    way = CollectiveWay::automatic;
  }
  if (is_staged(c, way)) {
    enqueue_staged(c, in);
    return Went::staged;
  }
  if (has_guards()) {
    enqueue_guarded(launch, in);
    return Went::in_turns;
  }
  choose_way(launch, call, way);
  const Went went = launch.ways.count > 0   ? Went::as_chosen
                    : launch.tree.count > 0 ? Went::along_tree
                    : c.packed              ? Went::by_packs
                    : c.direct              ? Went::direct
                                            : Went::by_lines;
  device_.launch(in.stream, std::move(launch));
  if (!in.captured) ++enqueued_;
  return went;
}

void Collectives::enqueue_staged(const Collective& call, const InStream& in) {
  try {
    if (in.captured) device_.keep_for_graph(in.stream, in.keep);
    memory_->staged->enqueue(call, in.stream, in.captured);
  } catch (const std::exception& error) {  // the other ranks wait for what could not be enqueued
    memory_->reports->fail(error.what());
    throw;
  }
}

void Collectives::enqueue_copied(const Collective& call, bool in_place, const InStream& in) {
  CopiedCall copied{call.kind, in_place, call.root, call.send, call.recv, call.bytes, not_attached};
  // Results would be written over what others still read.
  if (copied.gives(call.me) && !copied.replaces())
    copied.place = place_of(call.send, call.bytes * (copied.sends_blocks() ? call.ranks() : 1));
  try {
    if (in.captured) device_.keep_for_graph(in.stream, in.keep);
    memory_->staged->enqueue(call, copied, in.stream, in.captured);
  } catch (const std::exception& error) {  // the other ranks wait for what could not be enqueued
    memory_->reports->fail(error.what());
    throw;
  }
}

/// As many calls as they have pieces, each in two launches; see wire/collective_guarded.h.
void Collectives::enqueue_guarded(const CollectiveLaunch& launch, const InStream& in) {
  CallGuards& guards = *memory_->guards;
  const std::uint64_t whole = launch.call.bytes, most = piece_of(launch.call);
  try {
    for (std::uint64_t at = 0; at == 0 || at < whole; at += most) {
      CollectiveLaunch piece = launch;
      Collective& c = piece.call;
      c.bytes = std::min(most, whole - at);
      c.piece_bytes = most;
      if (c.send) c.send += at;
      if (c.recv) c.recv += at;
      c.parts = c.launched = guarded_parts(c);
      c.half = CallHalf::sends;
      device_.launch(in.stream, CollectiveLaunch(piece));
      guards.before_receives(in.stream);
      c.half = CallHalf::receives;
      device_.launch(in.stream, std::move(piece));
      if (!in.captured) ++enqueued_;
    }
  } catch (const std::exception& error) {  // the other ranks wait for what could not be enqueued
    memory_->reports->fail(error.what());
    throw;
  }
}

void Collectives::enqueue_between_nodes(const Call& call, const InStream& in) {
  Rails& rails = *memory_->rails;
  const auto on_rails = [&](RailStep& step) {
    step.word = in.word;
    step.host = prototype_.host;
    const bool meets = step.does(RailStep::meet);
    device_.launch(in.stream, RailLaunch{step, &rails, in.captured, in.keep});
    if (meets && !in.captured) ++exchanges_;
  };
  try {
    BetweenNodes({rails.shape(), rails.places(), rails.packed(), rails.collected()}, call,
                 {[&](const Call& on_node) { (void)enqueue_on_node(on_node, in); }, on_rails})
        .enqueue();
  } catch (const std::exception& error) {  // the other ranks wait for what could not be enqueued
    memory_->reports->fail(error.what());
    throw;
  }
}

void Collectives::begin_reports() { memory_->reports->begin(); }

void Collectives::enqueue(const Call& call, Stream stream) {
  const std::lock_guard<std::mutex> hold(mutex_);
  check(call);
  InStream in{stream, device_.check_stream(stream) != 0, 0, memory_};
  was_captured_ = was_captured_ || in.captured;
  in.word =
      CallWord{call.kind, call.operation, call.element, static_cast<std::uint32_t>(call.root), call.bytes}.packed();
  if (!in.captured) {
    last_word_ = in.word;
    all_words_ = (all_words_ ^ in.word) * 0x9e3779b97f4a7c15u + 1;
  }
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  if (call.keep) in.keep = std::make_shared<Both>(memory_, call.keep);
  memory_->reports->begin();
  if (memory_->rails) {
    enqueue_between_nodes(call, in);
    ++counts_.between_nodes;
  } else {
    const Went went = enqueue_on_node(call, in);
    ++(went == Went::as_chosen    ? counts_.chosen
       : went == Went::by_packs   ? counts_.by_packs
       : went == Went::along_tree ? counts_.along_trees
       : went == Went::in_turns   ? counts_.in_turns
       : went == Went::staged     ? counts_.staged
       : went == Went::copied     ? counts_.copied
       : went == Went::direct     ? counts_.direct
                                  : counts_.by_lines);
  }
  ++counts_.calls;
  const bool gives = call.kind != CollectiveKind::bcast || rank() == call.root;
  const bool blocks = call.kind == CollectiveKind::alltoall || call.kind == CollectiveKind::reduce_scatter;
  if (gives) counts_.bytes += call.bytes * (blocks ? static_cast<std::uint64_t>(size()) : 1);
}

void Collectives::attach(Bootstrap& bootstrap, void* base, std::size_t bytes) {
  const auto free =
      std::find_if(attachments_.begin(), attachments_.end(), [](const Attachment& one) { return !one.is_used; });
  if (free == attachments_.end())
    throw Error(Fault::memory, std::to_string(attachments_.size()) + " are attached already");
  struct Offer {
    ExportedMemory exported;
    std::uint64_t offset;
    std::uint64_t present;
  } mine{};
  if (bytes > 0) {
    char* const begin = static_cast<char*>(base);
    for (const Attachment& one : attachments_) {
      const auto* const other = static_cast<const char*>(one.own);
      if (one.is_used && one.bytes > 0 && begin < other + one.bytes && other < begin + bytes)
        throw Error(Fault::attach, "the memory overlaps what is attached");
    }
    device_.use_memory_of(base, bytes);
    const std::optional<Allocation> around = device_.shareable(base);
    if (!around || begin + bytes > around->base + around->bytes)
      throw Error(Fault::attach, "other ranks cannot map the memory: MPI_Alloc_mem allocates some that they can");
    mine.exported = device_.export_memory(around->base);
    mine.offset = static_cast<std::uint64_t>(begin - around->base);
    mine.present = 1;
  }
  const std::vector<Offer> all = bootstrap.allgather(mine);
  Attachment made;
  made.own = base;
  made.bytes = bytes;
  made.is_used = true;
  const std::vector<int>& locals = team_->locals();
  made.mapped.resize(locals.size());
  const auto index = static_cast<std::size_t>(free - attachments_.begin());
  std::vector<char*> map(locals.size());
  try {
    for (std::size_t i = 0; i < locals.size(); ++i) {
      const Offer& offer = all[static_cast<std::size_t>(locals[i])];
      if (offer.present == 0) continue;
      char* at = static_cast<char*>(base);
      if (i != prototype_.me) {
        made.mapped[i] = device_.import_memory(offer.exported);
        at = made.mapped[i] + offer.offset;
      }
      map[i] = at;
      device_.write(memory_->attached + (i * most_attached + index) * sizeof(char*), &at, sizeof at);
    }
    (void)bootstrap.allgather(std::uint64_t{0});
  } catch (...) {
    unmap(made);
    throw;
  }
  const std::lock_guard<std::mutex> hold(mutex_);
  memory_->maps[index] = std::move(map);
  *free = std::move(made);
}

void Collectives::detach(Bootstrap& bootstrap, void* base) {
  const auto found = std::find_if(attachments_.begin(), attachments_.end(),
                                  [base](const Attachment& one) { return one.is_used && one.own == base; });
  const std::uint64_t index = static_cast<std::uint64_t>(found - attachments_.begin());
  (void)wait_for_all();
  // Where some are wrong all say the same.
  std::vector<std::string> names;
  for (const std::uint64_t one : bootstrap.allgather(index))
    names.push_back(one < attachments_.size() ? "attachment " + std::to_string(one + 1) : "none");
  const std::string by_rank = differing(names);
  if (!by_rank.empty()) throw Error(Fault::attach, "the ranks name different attachments: " + by_rank);
  if (found == attachments_.end()) throw Error(Fault::attach, "this memory is not attached");
  (void)bootstrap.allgather(std::uint64_t{0});
  const std::lock_guard<std::mutex> hold(mutex_);
  memory_->maps[static_cast<std::size_t>(found - attachments_.begin())].clear();
  unmap(*found);
}

bool Collectives::have_run(std::uint64_t enqueued, std::uint64_t exchanges) {
  const std::uint64_t run = device_.collectives_run(prototype_);
  if (static_cast<std::int32_t>(static_cast<std::uint32_t>(run - enqueued)) < 0) return false;
  if (memory_->staged && !memory_->staged->have_run()) return false;
  return !memory_->rails || memory_->rails->is_quiet(exchanges);
}

std::unique_lock<std::mutex> Collectives::held_if_idle(bool or_unseen) {
  std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (hold && ((was_captured_ && !or_unseen) || !(is_broken() || have_run(enqueued_, exchanges_)))) hold.unlock();
  return hold.owns_lock() ? std::move(hold) : std::unique_lock<std::mutex>();
}

std::uint32_t Collectives::fingerprint() {
  const std::lock_guard<std::mutex> hold(mutex_);
  return was_captured_ ? 0 : static_cast<std::uint32_t>(all_words_ >> 32) | 1;
}

void Collectives::tell_of_different_calls() {
  const std::lock_guard<std::mutex> hold(mutex_);
  memory_->reports->fail(
      "the ranks have called different things, or named different roots, and no call has noticed: "
      "results may be wrong; the last call of this rank was " +
      (last_word_ ? text_of(CallWord::of(last_word_)) : "none"));
}

bool Collectives::wait_for_all() {
  std::uint64_t enqueued = 0, exchanges = 0;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    enqueued = enqueued_;
    exchanges = exchanges_;
  }
  for (auto nap = std::chrono::microseconds(5);; nap = std::min(2 * nap, std::chrono::microseconds(2000))) {
    if (have_run(enqueued, exchanges)) return !is_broken();
    if (is_broken()) return false;
    std::this_thread::sleep_for(nap);
  }
}

void Collectives::close(bool is_orderly) {
  if (memory_->guards) memory_->guards->close();  // which may outlive the device, where they are broken
  if (memory_->rails) memory_->rails->close(is_orderly);
}

Collectives::Counts Collectives::counts() {
  const std::lock_guard<std::mutex> hold(mutex_);
  Counts counts = counts_;
  if (counts.chosen > 0) counts.chosen_direct = device_.chosen_direct(prototype_);
  return counts;
}

std::uint64_t Collectives::memory_bytes() const {
  return prototype_.places.all() + prototype_.ranks() * most_attached * sizeof(char*) +
         (memory_->staged ? memory_->staged->memory_bytes() : 0) +
         (memory_->rails ? memory_->rails->memory_bytes() : 0);
}

}  // namespace mpix
