// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/reports.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/log.h"
#include "collective/node_notes.h"
#include "collective/said_function.h"

namespace mpix {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);
/// Longer than any note takes to change while a wait goes on: a host stream sleeps for a tenth of a second.
constexpr auto note_lasts = std::chrono::milliseconds(1500);

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
      return "MPIX_Barrier_stream";
    case CollectiveKind::bcast:
      return "MPIX_Bcast_stream";
    case CollectiveKind::reduce:
      return "MPIX_Reduce_stream";
    case CollectiveKind::allreduce:
      return "MPIX_Allreduce_stream";
    case CollectiveKind::reduce_scatter:
      return "MPIX_Reduce_scatter_block_stream";
    case CollectiveKind::allgather:
      return "MPIX_Allgather_stream";
    case CollectiveKind::alltoall:
      return "MPIX_Alltoall_stream";
  }
  return "?";
}

}  // namespace

std::string text_of(const CallWord& call) {
  std::string text = name_of(call.kind);
  if (call.kind == CollectiveKind::barrier) return text;
  text += " (" + std::to_string(call.bytes) + " bytes";
  if (call.operation == Operation::by_function)
    text += ", " + said_function::text_of(call.function);
  else if (call.operation != Operation::none)
    text += std::string(", ") + name_of(call.operation) + " of " + name_of(call.element);
  if (call.kind == CollectiveKind::bcast || call.kind == CollectiveKind::reduce)
    text += ", root " + std::to_string(call.root);
  return text + ")";
}

CollectiveReports::CollectiveReports(CollectiveWords* words, const std::vector<int>& locals, int rank, int ranks,
                                     const std::string& name, const Settings& settings, const std::string& hang_advice)
    : words_(words),
      locals_(locals),
      rank_(rank),
      name_(name),
      hang_advice_(hang_advice),
      seconds_(settings.timeout_seconds),
      fail_(settings.fail_on_timeout),
      seen_(locals.size() + static_cast<std::size_t>(ranks)),
      for_whom_(static_cast<std::size_t>(ranks), -1),
      noticed_(locals.size()) {}

CollectiveReports::~CollectiveReports() {
  if (begun_) end_service(*this);
}

void CollectiveReports::begin() {
  if (begun_) return;
  begin_service(*this);
  begun_ = true;
}

void CollectiveReports::break_with(const std::string& cause) {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (cause_.empty()) cause_ = cause;
  }
  store_release(&words_->released, 1);
}

std::string CollectiveReports::cause() {
  if (!is_broken()) return "";
  tell_of_difference();
  const std::lock_guard<std::mutex> hold(mutex_);
  return cause_.empty() ? "a wait was given up" : cause_;
}

void CollectiveReports::note_wait(std::uint32_t rank, std::uint64_t note, int for_whom) {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    for_whom_[rank] = for_whom;
  }
  store_release(&words_->notes[locals_.size() + rank], note);
}

void CollectiveReports::set_notes(NodeNotes* notes) {
  const std::lock_guard<std::mutex> hold(others_mutex_);
  notes_ = notes;
}

void CollectiveReports::set_others(Others others) {
  const std::lock_guard<std::mutex> hold(others_mutex_);
  others_ = std::move(others);
}

void CollectiveReports::set_watch(Watch watch) {
  const std::lock_guard<std::mutex> hold(others_mutex_);
  watch_ = std::move(watch);
}

void CollectiveReports::notice() {
  const std::lock_guard<std::mutex> hold(others_mutex_);
  for (std::size_t i = 0; watch_.notice && i < noticed_.size(); ++i) {
    const std::uint64_t note = load_acquire(&words_->notes[i]);
    if (std::exchange(noticed_[i], note) != note) watch_.notice(i);
  }
}

void CollectiveReports::tell_if_stuck() {
  std::string what;
  {
    const std::lock_guard<std::mutex> hold(others_mutex_);
    if (watch_.stuck) what = watch_.stuck(seconds_);
  }
  if (!what.empty()) log(fail_ ? LogLevel::error : LogLevel::warn, "collectives of '" + name_ + "': " + what);
}

/// Early enough for the others' reports.
bool CollectiveReports::lasts(const Seen& seen, Clock::time_point now) const {
  return seen.number != 0 && now - seen.changed <= note_lasts &&
         std::chrono::duration<double>(now - seen.since).count() >= (seconds_ > 0 ? seconds_ / 8 : 1);
}

void CollectiveReports::tell_others(std::size_t local) {
  Seen& seen = seen_[local];
  if (std::exchange(seen.told, seen.number) == seen.number) return;
  const std::lock_guard<std::mutex> hold(others_mutex_);
  if (others_.tell) others_.tell(static_cast<std::uint32_t>(locals_[local]));
}

/// It may have stopped.
void CollectiveReports::ask(std::size_t local) {
  const std::lock_guard<std::mutex> hold(others_mutex_);
  if (!notes_) return;
  if (const CallDifference told = notes_->difference_of(local); told.is_known()) note_difference(told);
}

std::string CollectiveReports::missing_text(std::size_t index) {
  const bool is_far = index >= locals_.size();
  int for_whom = -1;
  if (is_far) {
    const std::lock_guard<std::mutex> hold(mutex_);
    for_whom = for_whom_[index - locals_.size()];
  } else {
    const std::lock_guard<std::mutex> hold(others_mutex_);
    if (notes_) for_whom = notes_->wait_of(index);
  }
  return std::to_string(is_far ? static_cast<int>(index - locals_.size()) : locals_[index]) +
         (for_whom >= 0 ? " (which waits for rank " + std::to_string(for_whom) + ")"
          : is_far      ? " (of another node)"
                        : "");
}

void CollectiveReports::note_difference(const CallDifference& difference) {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!difference_.is_known()) difference_ = difference;
  }
  store_release(&words_->released, 1);
}

void CollectiveReports::fail(const std::string& why) {
  if (is_broken()) return;
  log(LogLevel::error, "collectives of '" + name_ + "': " + why);
  break_with(why);
}

std::string CollectiveReports::text_of(const CallDifference& difference) const {
  const auto name = [&](unsigned index) {
    return difference.rank(index) == rank_ ? std::string("this rank")
                                           : "rank " + std::to_string(difference.rank(index));
  };
  if (difference.calls[0] == difference.calls[1])  // that ranks choose for themselves; it cannot be
    return name(0) + " took another way in the call before";
  return "the ranks call different things: " + name(0) + " " + mpix::text_of(CallWord::of(difference.calls[0])) + ", " +
         name(1) + " " + mpix::text_of(CallWord::of(difference.calls[1]));
}

void CollectiveReports::tell_of_difference() {
  const std::uint64_t differs = load_acquire(&words_->differs);
  CallDifference difference{};
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    difference =
        differs == 0 ? difference_ : CallDifference::of(locals_[differs - 1], words_->theirs, rank_, words_->mine);
    if (told_of_difference_ || !difference.is_known()) return;
    told_of_difference_ = true;
  }
  const std::string text = text_of(difference);
  log(LogLevel::error, "collectives of '" + name_ + "': " + text + "; nothing is reduced or moved any more");
  break_with(text);
  const std::lock_guard<std::mutex> hold(others_mutex_);
  if (notes_) notes_->tell_difference(difference);
  if (others_.tell_of_difference) others_.tell_of_difference(difference);
}

bool CollectiveReports::is_overdue(Seen& seen, std::uint64_t note, Clock::time_point now) const {
  const auto number = static_cast<std::uint32_t>(note >> 32);
  // The note was the old one then: it may have changed right after that, and the wait have ended, where looks are late.
  const Clock::time_point known_until = std::exchange(seen.looked, now);
  if (note == seen.note) {
    // It changes no more: that wait is over, if it is one.
    if (now - seen.changed > note_lasts) seen.number = 0;
    return false;
  }
  seen.note = note;
  seen.changed = now;
  if (seen.number != number) {
    seen.number = number;
    seen.since = now;
    seen.reported = {};
    return false;
  }
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  if (seconds_ <= 0 || known_until - seen.since - seen.reported < patience) return false;
  seen.reported = known_until - seen.since;
  return true;
}

Poller::Clock::duration CollectiveReports::look(Clock::time_point now) {
  notice();
  tell_of_difference();
  if (seconds_ > 0) tell_if_stuck();
  std::string missing;
  Clock::duration longest{};
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    Seen& seen = seen_[i];
    const std::uint64_t note = load_acquire(&words_->notes[i]);
    const bool is_missing = note != 0 && is_overdue(seen, note, now);
    if (i < locals_.size() && lasts(seen, now)) {
      ask(i);
      tell_others(i);
    }
    if (!is_missing) continue;
    missing += (missing.empty() ? "" : ", ") + missing_text(i);
    longest = std::max(longest, seen.reported);
  }
  tell_of_difference();
  if (!missing.empty() && !is_broken()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest).count();
    const std::string text = "a call waits for rank " + missing + ", for " + std::to_string(seconds) +
                             " s: it has not made the call, or its stream has not come to it" +
                             (hang_advice_.empty() ? "" : "; or " + hang_advice_);
    log(fail_ ? LogLevel::error : LogLevel::warn, "collectives of '" + name_ + "': " + text);
    if (fail_) break_with(text);
  }
  if (seconds_ <= 0) return between_looks;
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  return std::clamp<Clock::duration>(patience / 20, std::chrono::milliseconds(10), between_looks);
}

void CollectiveReports::failed(const char* why) noexcept { log(LogLevel::warn, why); }

}  // namespace mpix
