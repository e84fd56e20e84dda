// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/collectives.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/naps.h"
#include "base/service.h"
#include "collective/between_nodes.h"
#include "collective/collectives_memory.h"
#include "device/collective_launch.h"
#include "team/differing.h"

namespace mpix {

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

std::uint32_t Collectives::blocks() const {
  if (has_guards()) return 0;
  if (device_.parts_in_use() == 1) return 1;
  return ways_.blocks > 0 ? std::min(ways_.blocks, blocks_) : blocks_;
}

CallRoom* Collectives::room() const { return memory_->room.get(); }

bool Collectives::stages() const { return memory_->led != nullptr; }

bool Collectives::is_broken() const { return memory_->reports->is_broken(); }

void Collectives::check(const Call& call) const {
  if (is_broken())
    throw Error(Fault::synchronization,
                "collectives on streams are over on this communicator: " + memory_->reports->cause());
  if (call.bytes >> CallWord::byte_bits != 0)
    throw Error(Fault::count, std::to_string(call.bytes) + " bytes: a call moves less than 64 GiB");
  const bool sends = call.kind == CollectiveKind::bcast ? rank() == call.root : call.kind != CollectiveKind::barrier;
  const bool receives = call.kind == CollectiveKind::bcast    ? rank() != call.root
                        : call.kind == CollectiveKind::reduce ? rank() == call.root
                                                              : call.kind != CollectiveKind::barrier;
  if (call.bytes == 0) return;
  if (sends && !call.send) throw Error(Fault::buffer, "no buffer to send from");
  if (receives && !call.recv) throw Error(Fault::buffer, "no buffer to receive in");
  const bool has_one = call.kind == CollectiveKind::bcast || call.in_place;
  if (sends) device_.check_buffer(call.send, has_one ? "buffer" : "send buffer");
  if (receives) device_.check_buffer(call.recv, has_one ? "buffer" : "receive buffer");
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
  launch.sharers = most_sharers_;
  launch.room = room();
  launch.capture = in.capture;
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
  way = if_possible(way, c);
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
  if (!in.is_captured()) ++enqueued_;
  return went;
}

/// The other ranks wait for what could not be enqueued.
template <class Enqueue>
void Collectives::or_fail(Enqueue enqueue_it) {
  try {
    enqueue_it();
  } catch (const std::exception& error) {
    memory_->reports->fail(error.what());
    throw;
  }
}

void Collectives::enqueue_staged(const Collective& call, const InStream& in) {
  or_fail([&] {
    if (in.is_captured()) device_.keep_for_graph(in.stream, in.keep);
    memory_->led->enqueue(call, in.stream, in.is_captured());
  });
}

void Collectives::enqueue_copied(const Collective& call, bool in_place, const InStream& in) {
  CopiedCall copied{call.kind, in_place, call.root, call.send, call.recv, call.bytes, not_attached};
  // Results would be written over what others still read.
  if (copied.gives(call.me) && !copied.replaces())
    copied.place = place_of(call.send, call.bytes * (copied.sends_blocks() ? call.ranks() : 1));
  or_fail([&] {
    if (in.is_captured()) device_.keep_for_graph(in.stream, in.keep);
    memory_->led->enqueue(call, copied, in.stream, in.is_captured());
  });
}

/// As many calls as they have pieces, each in two launches; see wire/collective_guarded.h.
void Collectives::enqueue_guarded(const CollectiveLaunch& launch, const InStream& in) {
  CallGuards& guards = *memory_->guards;
  const std::uint64_t whole = launch.call.bytes, most = piece_of(launch.call);
  or_fail([&] {
    for (std::uint64_t at = 0; at == 0 || at < whole; at += most) {
      CollectiveLaunch piece = launch;
      if (share_in_turns_) piece.sharers = 1;  // each has the processor for itself
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
      if (!in.is_captured()) ++enqueued_;
    }
  });
}

void Collectives::enqueue_between_nodes(const Call& call, const InStream& in) {
  Rails& rails = *memory_->rails;
  const auto on_rails = [&](RailStep& step) {
    step.word = in.word;
    step.host = prototype_.host;
    const bool meets = step.does(RailStep::meet);
    device_.launch(in.stream, RailLaunch{step, &rails, most_sharers_, room(), in.capture, in.keep});
    if (meets && !in.is_captured()) ++exchanges_;
  };
  or_fail([&] {
    BetweenNodes({rails.shape(), rails.places(), rails.packed(), rails.collected()}, call,
                 {[&](const Call& on_node) { (void)enqueue_on_node(on_node, in); }, on_rails})
        .enqueue();
  });
}

void Collectives::enqueue(const Call& call, Stream stream) {
  const std::lock_guard<std::mutex> hold(mutex_);
  check(call);
  InStream in{stream, device_.check_stream(stream), 0, memory_};
  was_captured_ = was_captured_ || in.is_captured();
  if (was_captured_ && !in.is_captured() && !last_point_) last_point_ = device_.new_point();  // may fail
  in.word = CallWord{call.kind,  call.operation,    call.element, static_cast<std::uint32_t>(call.root),
                     call.bytes, call.said_function}
                .packed();
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
  if (!in.is_captured()) {
    last_word_ = in.word;
    all_words_ = (all_words_ ^ in.word) * 0x9e3779b97f4a7c15u + 1;
    if (last_point_) last_point_->set(stream);
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
  const void* allocation = nullptr;
  if (bytes > 0) {
    char* const begin = static_cast<char*>(base);
    for (const Attachment& one : attachments_) {
      const auto* const other = static_cast<const char*>(one.own);
      if (one.is_used && one.bytes > 0 && begin < other + one.bytes && other < begin + bytes)
        throw Error(Fault::attach, "the memory overlaps what is attached");
    }
    device_.use_memory_of(base, bytes);
    const std::optional<Allocation> around = device_.shareable(base);
    if (!around)
      throw Error(Fault::attach,
                  "other ranks cannot map the memory: MPI_Alloc_mem with info mpi_memory_alloc_kinds=mpix:device "
                  "allocates some that they can");
    if (begin + bytes > around->base + around->bytes)
      throw Error(Fault::attach, std::to_string(bytes) + " bytes, and the memory ends " +
                                     std::to_string(around->base + around->bytes - begin) +
                                     " bytes behind this address");
    allocation = around->base;
    mine.exported = device_.export_memory(around->base);
    mine.offset = static_cast<std::uint64_t>(begin - around->base);
    mine.present = 1;
  }
  const std::vector<Offer> all = bootstrap.allgather(mine);
  Attachment made;
  made.own = base;
  made.bytes = bytes;
  made.allocation = allocation;
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
  // A bit each: a rank may have several of one base, as of none at all.
  std::uint64_t mine = 0;
  static_assert(most_attached <= 64, "bits of a word");
  for (std::size_t i = 0; i < attachments_.size(); ++i)
    if (attachments_[i].is_used && attachments_[i].own == base) mine |= std::uint64_t{1} << i;
  (void)wait_for_all();
  const std::vector<std::uint64_t> all = bootstrap.allgather(mine);
  std::uint64_t common = mine;
  for (const std::uint64_t other : all) common &= other;
  if (common == 0) {  // and all say the same
    const std::string by_rank = differing(all, [](std::uint64_t bits) {
      std::string text;
      for (std::size_t k = 0; k < most_attached; ++k)
        if ((bits >> k & 1) != 0) text += (text.empty() ? "attachment " : " or ") + std::to_string(k + 1);
      return text.empty() ? "none" : text;
    });
    if (!by_rank.empty()) throw Error(Fault::attach, "the ranks name different attachments: " + by_rank);
    throw Error(Fault::attach, "this memory is not attached");
  }
  std::size_t index = 0;
  while ((common >> index & 1) == 0) ++index;
  (void)bootstrap.allgather(std::uint64_t{0});
  const std::lock_guard<std::mutex> hold(mutex_);
  memory_->maps[index].clear();
  unmap(attachments_[index]);
}

bool Collectives::has_attached(const void* allocation) {
  const std::lock_guard<std::mutex> hold(mutex_);
  return std::any_of(attachments_.begin(), attachments_.end(), [allocation](const Attachment& one) {
    return one.is_used && one.bytes > 0 && one.allocation == allocation;
  });
}

const std::string& Collectives::name() const { return memory_->reports->name(); }

bool Collectives::have_run(const Enqueued& all) {
  if (all.point && !all.point->passed()) return false;
  const std::uint64_t run = device_.collectives_run(prototype_);
  if (static_cast<std::int32_t>(static_cast<std::uint32_t>(run - all.calls)) < 0) return false;
  if (memory_->led && !memory_->led->have_run()) return false;
  return !memory_->rails || memory_->rails->is_quiet(all.exchanges);
}

std::unique_lock<std::mutex> Collectives::held_if_idle(bool or_unseen) {
  std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (hold && ((was_captured_ && !or_unseen) || !(is_broken() || have_run({enqueued_, exchanges_, last_point_}))))
    hold.unlock();
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

bool Collectives::wait_for_all(const std::function<void()>& meanwhile) {
  Enqueued all{};
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    all = {enqueued_, exchanges_, last_point_};
  }
  if (memory_->rails) memory_->rails->set_awaited(true);
  for (Naps naps(meanwhile); !is_broken() && !have_run(all);) naps.next();
  if (memory_->rails) memory_->rails->set_awaited(false);
  return !is_broken();
}

void Collectives::tell_others() {
  let_service_look();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (memory_->rails && memory_->rails->is_telling() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Collectives::close(bool is_orderly) {
  // Where calls are broken, or in graphs, what is there may outlive the device.
  memory_->reports->set_notes(nullptr);
  if (memory_->guards) memory_->guards->close();
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
         (memory_->led ? memory_->led->memory_bytes() : 0) + (memory_->rails ? memory_->rails->memory_bytes() : 0);
}

}  // namespace mpix
