// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "epoch/wait_watch.h"

#include <algorithm>
#include <exception>
#include <string>

#include "base/log.h"

namespace mpix {
namespace {

using std::chrono::milliseconds;

/// A kernel that waits writes a note every few milliseconds, or, where it has the GPU in turns only, every few turns.
constexpr auto longest_beat = milliseconds(250);

double seconds(Poller::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

WaitWatch::WaitWatch(const HostWords& words, std::size_t ranks, StallReporter& reporter, Guards* guards)
    : words_(words),
      reporter_(reporter),
      guards_(guards),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reporter.patience()))),
      ranks_(words.notes ? static_cast<int>(ranks) : 0) {
  begin_service(*this, interval(), Looks::may_wait);  // guards, and what a report says of peers, are read from the GPU
}

Poller::Clock::duration WaitWatch::interval() const noexcept {
  return std::clamp<Clock::duration>(patience_ / 10, milliseconds(10), milliseconds(5000));
}

Poller::Clock::duration WaitWatch::look(Clock::time_point now) {
  look_at_notes(now);
  if (guards_ && !is_released()) {
    look_at_guard(Guards::Side::targets, to_targets_, now);
    look_at_guard(Guards::Side::origins, to_origins_, now);
  }
  return interval();
}

void WaitWatch::failed(const char* why) noexcept {
  try {
    log(LogLevel::error, std::string("streams that wait too long are looked for no more: ") + why);
  } catch (const std::exception&) {  // no memory for a text
  }
}

// ---- kernels -----------------------------------------------------------------------------------------

void WaitWatch::follow(Noted& noted, std::uint64_t note, Clock::time_point now) const {
  if (note == noted.note) {
    if (now - noted.changed > std::max<Clock::duration>(longest_beat, 2 * interval())) noted.lasts = false;
    return;
  }
  if (!noted.lasts || without_beat(note) != without_beat(noted.note)) noted.begin(now);
  noted.note = note;
  noted.changed = now;
}

void WaitWatch::look_at_note(AllNoted& all, int rank, std::uint64_t note, Clock::time_point now) const {
  if (note != 0) follow(all[rank], note, now);
}

void WaitWatch::look_at_notes(Clock::time_point now) {
  for (int rank = 0; rank < ranks_; ++rank) {
    look_at_note(sends_, rank, load_acquire(&words_.notes[rank].send), now);
    look_at_note(receives_, rank, load_acquire(&words_.notes[rank].receive), now);
  }
  for (Call call : {Call::complete, Call::wait, Call::complete_wait}) report_notes(call, now);
}

void WaitWatch::report_notes(Call call, Clock::time_point now) {
  struct Late {
    int rank;
    Noted* noted;
  };
  std::vector<Late> all_late;
  bool due = false;
  Clock::duration longest{};
  const auto look = [&](AllNoted& all, Call alone) {
    for (auto& [rank, noted] : all) {
      if (!noted.lasts || (unpacked(noted.note).fused ? Call::complete_wait : alone) != call) continue;
      due = due || is_due(noted, now);
      longest = std::max(longest, now - noted.since);
      all_late.push_back({rank, &noted});
    }
  };
  look(sends_, Call::complete);
  look(receives_, Call::wait);
  if (!due || is_released()) return;
  MissingRanks missing;
  for (const Late& late : all_late) {
    late.noted->reported = now - late.noted->since;
    const WaitNote note = unpacked(late.noted->note);
    missing.add(late.rank, note.missing, note.epoch, reporter_.farewell_of(late.rank));
  }
  if (reporter_.stalled(call, missing.text(), seconds(longest)) && guards_) guards_->open();
}

// ---- guards --------------------------------------------------------------------------------------------

void WaitWatch::look_at_guard(Guards::Side side, Guarded& guarded, Clock::time_point now) {
  const Guards::Waiting waiting = guards_->look(side);
  if (waiting.mark == 0 || waiting.missing.empty()) {
    guarded.lasts = false;
    return;
  }
  if (!guarded.lasts || waiting.mark != guarded.mark || waiting.progress != guarded.progress) guarded.begin(now);
  guarded.mark = waiting.mark;
  guarded.progress = waiting.progress;
  if (!is_due(guarded, now)) return;
  guarded.reported = now - guarded.since;
  if (reporter_.stalled(waiting.call, waiting.missing, seconds(guarded.reported))) guards_->open();
}

}  // namespace mpix
