// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/staged_calls.h"

#include <algorithm>
#include <chrono>
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

std::unique_ptr<StagedCalls> StagedCalls::make(Bootstrap& bootstrap, Device& device, const std::vector<int>& locals,
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
  return std::unique_ptr<StagedCalls>(new StagedCalls(device, any, std::move(base), room));
}

StagedCalls::StagedCalls(Device& device, const Collective& any, std::shared_ptr<char> base, std::uint64_t room)
    : device_(device),
      any_(any),
      base_(std::move(base)),
      memory_{base_.get(), any.ranks(), room},
      steps_(memory_, any.me),
      has_own_core_(has_cores_to_spare(static_cast<int>(any.ranks()))) {}

StagedCalls::~StagedCalls() {
  if (begun_) end_service(*this);
}

void StagedCalls::enqueue(const Collective& call, Stream stream, bool captured) {
  if (!begun_) begin_service(*this, when_woken);
  begun_ = true;
  if (captured) was_captured_ = true;
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

bool StagedCalls::have_run() const {
  return passed_.load() >= enqueued_.load() && load_acquire(&memory_.words(any_.me).over) != 0;
}

/// Ranks that are waited for, for the reports.
void StagedCalls::note_waits(Clock::time_point now) {
  if (steps_.is_idle() || now - since_ < between_notes || now - noted_ < between_notes) return;
  noted_ = now;
  ++beat_;
  for (std::uint32_t rank = 0; rank < any_.ranks(); ++rank)
    if (steps_.misses(rank))
      store_release(&any_.host->notes[rank], collective_note(static_cast<std::uint32_t>(steps_.number()), beat_));
}

Poller::Clock::duration StagedCalls::look(Clock::time_point now) {
  bool moved = false;
  const auto pass = [&] {
    ++passed_;
    ring(&memory_.words(any_.me).bell);
  };
  if (load_acquire(&any_.host->released) != 0) {
    moved = steps_.release();
    if (moved) pass();
    return back_off_.next(moved, false, now);
  }
  for (StagedSteps::Step step; (step = steps_.step()) != StagedSteps::Step::nothing;) {
    moved = true;
    if (step == StagedSteps::Step::passed) pass();
    if (step == StagedSteps::Step::differs) {
      CollectiveWords& host = *any_.host;
      host.mine = steps_.word();
      host.theirs = steps_.other_word();
      store_release(&host.differs, steps_.other() + 1);
      store_release(&host.released, 1);
      return {};
    }
  }
  if (moved) since_ = now;
  note_waits(now);
  if (!moved && steps_.is_idle() && !was_captured_ && passed_ >= enqueued_) return when_woken;
  const Clock::duration nap = back_off_.next(moved, false, now);
  return has_own_core_ ? nap : std::max<Clock::duration>(nap, least_nap);
}

void StagedCalls::failed(const char* why) noexcept {
  log(LogLevel::error, std::string("collectives by way of the CPU: ") + why);
  store_release(&any_.host->released, 1);
}

}  // namespace mpix
