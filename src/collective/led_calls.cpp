// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/led_calls.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "device/host/bell.h"
#include "device/shared_file.h"
#include "team/bootstrap.h"

namespace mpix {
namespace {

/// A wait is worth a note when it has lasted as long, and another one then.
constexpr auto between_notes = std::chrono::milliseconds(50);

/// Where threads outnumber cores: one that has slept, with short time slices (wake_soon), gets a core back sooner than
/// one that gives it away. 16 ranks on 16 cores, whose programs poll for the end of their streams: 2.3 ms a call
/// for 12.
constexpr auto least_nap = std::chrono::microseconds(5);

}  // namespace

std::unique_ptr<LedCalls> LedCalls::make(Bootstrap& bootstrap, Device& device, const std::vector<int>& locals,
                                         const Collective& any, std::uint64_t room, std::string& why_not) {
  const std::size_t bytes = SharedFile::in_pages(StagedMemory::bytes(any.ranks(), room));
  const auto first = static_cast<std::size_t>(locals.front());
  std::shared_ptr<SharedFile> file;
  std::shared_ptr<char> base;
  struct Card {
    SharedFile::Ticket ticket;
    bool is_made;
  } card{};
  const auto attempt = [&](auto body) {
    try {
      body();
    } catch (const Error& error) {
      why_not = error.what();
    }
  };
  if (any.me == 0)
    attempt([&] {
      file = SharedFile::create();
      card = {file->ticket(), true};
    });
  const std::vector<Card> cards = bootstrap.allgather(card);
  if (cards[first].is_made)
    attempt([&] {
      if (!file) file = SharedFile::join(cards[first].ticket);
      char* const at = file->map(0, bytes);
      const std::shared_ptr<char> mapped(at, [file](char* mapping) { file->unmap(mapping); });
      base = device.pin(mapped, bytes);
    });
  const std::vector<std::uint32_t> have = bootstrap.allgather(std::uint32_t{base != nullptr});
  if (file) file->close_descriptor();
  for (const std::uint32_t has : have)
    if (has == 0) return nullptr;
  return std::unique_ptr<LedCalls>(new LedCalls(device, any, std::move(base), room));
}

LedCalls::LedCalls(Device& device, const Collective& any, std::shared_ptr<char> base, std::uint64_t room)
    : device_(device),
      any_(any),
      base_(std::move(base)),
      memory_{base_.get(), any.ranks(), room},
      steps_(memory_, any.me),
      has_own_core_(has_cores_to_spare(static_cast<int>(any.ranks()))),
      ahead_(any.ranks()) {}

LedCalls::~LedCalls() {
  if (begun_) end_service(*this);
}

void LedCalls::prepare_copies(const std::vector<char*>& memory, const AttachedMaps& maps) {
  CopiedMoves<Copier>::Places places{memory, any_.places.scratch_bytes};
  for (char*& one : places.of_rank) one += any_.places.sent();
  const auto attached = [&maps](std::uint32_t rank, std::uint64_t place) -> const char* {
    const std::vector<char*>& mapped = maps[place >> 56];
    if (rank >= mapped.size() || !mapped[rank]) throw Error(Fault::attach, "a call of memory that is not attached");
    return mapped[rank] + (place & ((std::uint64_t{1} << 56) - 1));
  };
  std::unique_ptr<Copier> fills = device_.new_copier(), takes = device_.new_copier();
  load_copies(places, *fills, *takes);
  moves_ = std::make_unique<CopiedMoves<Copier>>(memory_, any_.me, std::move(places), attached, std::move(fills),
                                                 std::move(takes));
}

/// CUDA loads what copies on a GPU need when there is one for the first time, and that waits for streams which wait for
/// the copy.
void LedCalls::load_copies(const CopiedMoves<Copier>::Places& places, Copier& fills, Copier& takes) const {
  const std::uint64_t half = places.bytes / 2;
  char* const mine = places.of_rank[any_.me];
  for (std::uint64_t bytes = 1; bytes < half; bytes *= 8) {
    (void)fills.start(mine + half, mine, bytes);
    (void)fills.start(mine + half, mine + 1, bytes);
    for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
      if (rank != any_.me) (void)takes.start(mine + half, places.of_rank[rank], bytes);
  }
  const std::uint64_t last[] = {fills.start(mine, mine, 0), takes.start(mine, mine, 0)};
  while (fills.finished() < last[0] || takes.finished() < last[1])
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void LedCalls::begin(bool captured) {
  // The copies of a call may have to wait in calls of CUDA.
  if (!begun_) begin_service(*this, when_woken, moves_ ? Looks::may_wait : Looks::at_once);
  begun_ = true;
  if (captured) was_captured_ = true;
}

void LedCalls::enqueue(const Collective& call, const CopiedCall& copied, Stream stream, bool captured) {
  begin(captured);
  const CopiedCall* kept = nullptr;
  if (captured) {
    const auto of_graph = std::make_shared<const CopiedCall>(copied);
    device_.keep_for_graph(stream, of_graph);
    kept = of_graph.get();
  } else {
    const std::lock_guard<std::mutex> hold(mutex_);
    kept = to_come_.emplace_back(std::make_unique<const CopiedCall>(copied)).get();
    ++enqueued_;
  }
  StagedWords& words = memory_.words(any_.me);
  const std::vector<MemoryOp> ops = {{&words.copied, reinterpret_cast<std::uintptr_t>(kept), false},
                                     {&words.place, copied.place, false},
                                     {&words.sent, call.word, false},
                                     {&words.go, 1, true},
                                     {&words.go, 0, false},
                                     {&words.over, 1, false}};
  device_.run_memory_ops(stream, {ops, &words.bell, nullptr, any_.host});
  wake_service(*this);
}

void LedCalls::begin_moves() {
  const auto* const copied = reinterpret_cast<const CopiedCall*>(steps_.copied());
  moves_->begin(*copied, steps_.number());
  const std::lock_guard<std::mutex> hold(mutex_);
  const auto at = std::find_if(to_come_.begin(), to_come_.end(), [&](const auto& one) { return one.get() == copied; });
  if (at != to_come_.end()) to_come_.erase(at);
}

void LedCalls::enqueue(const Collective& call, Stream stream, bool captured) {
  begin(captured);
  StagedWords& words = memory_.words(any_.me);
  const std::uint64_t part = CallWord{call.kind, call.operation, call.element, call.root, call.bytes}.packed();
  for (std::uint64_t at = 0; at == 0 || at < call.bytes;) {
    const StagedPiece piece = staged_piece(memory_, call.kind, at, call.bytes);
    if (!captured) ++enqueued_;
    device_.copy(stream, copy_in(memory_, call, piece));
    const std::vector<MemoryOp> ops = {
        {&words.part, part, false}, {&words.sent, call.word, false}, {&words.go, 1, true}, {&words.go, 0, false}};
    device_.run_memory_ops(stream, {ops, &words.bell, nullptr, any_.host});
    device_.copy(stream, copy_out(memory_, call, piece));
    device_.run_memory_ops(stream, {{{&words.over, 1, false}}, &words.bell});
    if (piece.bytes == 0) break;
    at += piece.bytes;
  }
  wake_service(*this);
}

bool LedCalls::have_run() const {
  return passed_.load() >= enqueued_.load() && load_acquire(&memory_.words(any_.me).over) != 0;
}

/// Ranks that are waited for, for the reports.
void LedCalls::note_waits(Clock::time_point now) {
  if (steps_.is_idle() || now - since_ < between_notes || now - noted_ < between_notes) return;
  noted_ = now;
  ++beat_;
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
    if (steps_.misses(rank))
      store_release(&any_.host->notes[rank], collective_note(static_cast<std::uint32_t>(steps_.number()), beat_));
}

void LedCalls::differ(std::uint32_t rank, std::uint64_t mine, std::uint64_t theirs) {
  CollectiveWords& host = *any_.host;
  host.mine = mine;
  host.theirs = theirs;
  store_release(&host.differs, rank + 1);
  store_release(&host.released, 1);
}

std::string LedCalls::stuck(double seconds) {
  const Clock::rep since = looks_since_;
  if (since == 0 || since == told_stuck_) return "";
  const std::chrono::duration<double> lasts = Clock::now().time_since_epoch() - Clock::duration(since);
  if (lasts.count() < seconds) return "";
  told_stuck_ = since;
  return "the device has not taken the copies of a call, for " + std::to_string(static_cast<long>(lasts.count())) +
         " s: with CUDA the program is perhaps freeing memory, or launching a kernel for the first time "
         "(CUDA_MODULE_LOADING=EAGER excludes that), which waits for the stream of the call, and holds up all copies";
}

void LedCalls::noted_wait(std::uint32_t rank) {
  const std::unique_lock<std::mutex> hold(looks_, std::try_to_lock);
  if (!hold) return;
  StagedWords& mine = memory_.words(any_.me);
  const StagedWords& theirs = memory_.words(rank);
  const std::uint64_t number = load_acquire(&theirs.arrived), called = load_relaxed(&any_.host->called);
  const bool is_ahead = number == steps_.number() + 1;
  if (!is_ahead || !steps_.is_idle() || load_acquire(&mine.sent) != 0 || called == 0) {
    ahead_[rank] = {};
    return;
  }
  if (ahead_[rank].number != number) ahead_[rank] = {number, 0};
  // Where a rank has arrived, all that its calls before have told is there. A note may be of a look before that, and
  // may have been late; but between the first and the second one that come behind it there has been a look.
  if (++ahead_[rank].notes <= 2) {
    if (!device_.hidden_from_host(any_.own())) ring(reinterpret_cast<Bell*>(any_.own()));
    return;
  }
  store_release(&mine.instead, called);
  differ(rank, called, theirs.word);
}

Poller::Clock::duration LedCalls::look(Clock::time_point now) {
  const std::lock_guard<std::mutex> hold(looks_);
  looks_since_ = now.time_since_epoch().count();
  Clock::duration next{};
  try {
    next = look_at_calls(now);
  } catch (const std::exception& error) {  // the next look lets the streams go
    failed(error.what());
  }
  looks_since_ = 0;
  return next;
}

Poller::Clock::duration LedCalls::look_at_calls(Clock::time_point now) {
  bool moved = false;
  const auto pass = [&] {
    ++passed_;
    ring(&memory_.words(any_.me).bell);
  };
  if (load_acquire(&any_.host->released) != 0) {
    if (moves_) moves_->end_copies();
    moved = (!moves_ || moves_->is_quiet()) && steps_.release();
    if (moved) pass();
    return back_off_.next(moved, false, now);
  }
  const auto move = [&] {
    if (moves_->step()) moved = true;
    if (moves_->is_over()) steps_.have_moved();
  };
  if (steps_.is_moving()) move();
  for (StagedSteps::Step step; (step = steps_.step()) != StagedSteps::Step::nothing;) {
    moved = true;
    if (step == StagedSteps::Step::moves) {
      begin_moves();
      move();
    }
    if (step == StagedSteps::Step::passed) pass();
    if (step == StagedSteps::Step::differs) {
      differ(steps_.other(), steps_.word(), steps_.other_word());
      return {};
    }
  }
  if (moved) since_ = now;
  note_waits(now);
  if (!moved && steps_.is_idle() && !was_captured_ && passed_ >= enqueued_) return when_woken;
  const Clock::duration nap = back_off_.next(moved, steps_.is_moving(), now);
  return has_own_core_ ? nap : std::max<Clock::duration>(nap, least_nap);
}

void LedCalls::failed(const char* why) noexcept {
  looks_since_ = 0;
  log(LogLevel::error, std::string("collectives that the service leads: ") + why);
  store_release(&any_.host->released, 1);
}

}  // namespace mpix
