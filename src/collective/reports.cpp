// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "collective/reports.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/log.h"

namespace mpix {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);
/// Longer than any note takes to change while a wait goes on: a host stream sleeps for half a second.
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

const char* name_of(Operation operation) {
  static const char* const names[] = {
      "",         "MPI_SUM",  "MPI_PROD", "MPI_MAX",  "MPI_MIN",    "MPI_LAND",   "MPI_LOR",
      "MPI_LXOR", "MPI_BAND", "MPI_BOR",  "MPI_BXOR", "MPI_MAXLOC", "MPI_MINLOC", "an operation by function"};
  const auto index = static_cast<std::size_t>(operation);
  return index < sizeof names / sizeof *names ? names[index] : "?";
}

const char* name_of(Element element) {
  static const char* const names[] = {"bytes",
                                      "1-byte integers",
                                      "1-byte unsigned integers",
                                      "2-byte integers",
                                      "2-byte unsigned integers",
                                      "4-byte integers",
                                      "4-byte unsigned integers",
                                      "8-byte integers",
                                      "8-byte unsigned integers",
                                      "4-byte floating point",
                                      "8-byte floating point",
                                      "8-byte complex",
                                      "16-byte complex",
                                      "MPI_FLOAT_INT",
                                      "MPI_DOUBLE_INT",
                                      "MPI_LONG_INT",
                                      "MPI_2INT",
                                      "MPI_SHORT_INT",
                                      "MPI_2REAL",
                                      "MPI_2DOUBLE_PRECISION"};
  const auto index = static_cast<std::size_t>(element);
  return index < sizeof names / sizeof *names ? names[index] : "?";
}

}  // namespace

std::string text_of(const CallWord& call) {
  std::string text = name_of(call.kind);
  if (call.kind == CollectiveKind::barrier) return text;
  text += " (" + std::to_string(call.bytes) + " bytes";
  if (call.operation != Operation::none)
    text += std::string(", ") + name_of(call.operation) + " of " + name_of(call.element);
  if (call.kind == CollectiveKind::bcast || call.kind == CollectiveKind::reduce)
    text += ", root " + std::to_string(call.root);
  return text + ")";
}

CollectiveReports::CollectiveReports(CollectiveWords* words, const std::vector<int>& locals, int ranks,
                                     const std::string& name, const Settings& settings, const std::string& hang_advice)
    : words_(words),
      locals_(locals),
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

std::string CollectiveReports::name_of_rank(std::uint64_t index) const {
  const std::uint64_t locals = locals_.size();
  return std::to_string(index < locals ? static_cast<std::uint64_t>(locals_[index]) : index - locals);
}

void CollectiveReports::note_wait(std::uint32_t rank, std::uint64_t note, int for_whom) {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    for_whom_[rank] = for_whom;
  }
  store_release(&words_->notes[locals_.size() + rank], note);
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
void CollectiveReports::tell_others(std::size_t index, Clock::time_point now) {
  Seen& seen = seen_[index];
  if (index >= locals_.size() || seen.number == 0 || seen.told == seen.number) return;
  if (now - seen.changed > note_lasts || std::chrono::duration<double>(now - seen.since).count() < seconds_ / 8) return;
  seen.told = seen.number;
  const std::lock_guard<std::mutex> hold(others_mutex_);
  if (others_.tell) others_.tell(static_cast<std::uint32_t>(locals_[index]));
}

std::string CollectiveReports::missing_text(std::size_t index) {
  const bool is_far = index >= locals_.size();
  int for_whom = -1;
  if (is_far) {
    const std::lock_guard<std::mutex> hold(mutex_);
    for_whom = for_whom_[index - locals_.size()];
  } else {
    const std::lock_guard<std::mutex> hold(others_mutex_);
    if (others_.ask) for_whom = others_.ask(index);
  }
  return name_of_rank(index) + (for_whom >= 0 ? " (which waits for rank " + std::to_string(for_whom) + ")"
                                : is_far      ? " (of another node)"
                                              : "");
}

void CollectiveReports::note_difference(std::uint32_t rank, std::uint64_t mine, std::uint64_t theirs) {
  words_->mine = mine;
  words_->theirs = theirs;
  store_release(&words_->differs, locals_.size() + rank + 1);
  store_release(&words_->released, 1);
}

void CollectiveReports::fail(const std::string& why) {
  if (is_broken()) return;
  log(LogLevel::error, "collectives of '" + name_ + "': " + why);
  break_with(why);
}

void CollectiveReports::tell_of_difference() {
  const std::uint64_t differs = load_acquire(&words_->differs);
  if (differs == 0) return;
  std::string text;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (told_of_difference_) return;
    told_of_difference_ = true;
    if (words_->theirs == words_->mine)  // that ranks choose for themselves; it cannot be
      text = "rank " + name_of_rank(differs - 1) + " took another way in the call before";
    else
      text = "the ranks call different things: rank " + name_of_rank(differs - 1) + " " +
             text_of(CallWord::of(words_->theirs)) + ", this rank " + text_of(CallWord::of(words_->mine));
  }
  log(LogLevel::error, "collectives of '" + name_ + "': " + text + "; nothing is reduced or moved any more");
  break_with(text);
  const std::lock_guard<std::mutex> hold(others_mutex_);
  if (others_.tell_of_difference && differs <= locals_.size())
    others_.tell_of_difference(static_cast<std::uint32_t>(locals_[differs - 1]));
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
  if (known_until - seen.since - seen.reported < patience) return false;
  seen.reported = known_until - seen.since;
  return true;
}

Poller::Clock::duration CollectiveReports::look(Clock::time_point now) {
  notice();
  tell_of_difference();
  if (seconds_ <= 0) return between_looks;
  tell_if_stuck();
  std::string missing;
  Clock::duration longest{};
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    Seen& seen = seen_[i];
    const std::uint64_t note = load_acquire(&words_->notes[i]);
    const bool is_missing = note != 0 && is_overdue(seen, note, now);
    tell_others(i, now);
    if (!is_missing) continue;
    missing += (missing.empty() ? "" : ", ") + missing_text(i);
    longest = std::max(longest, seen.reported);
  }
  if (!missing.empty() && !is_broken()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest).count();
    const std::string text = "a call waits for rank " + missing + ", for " + std::to_string(seconds) +
                             " s: it has not made the call, or its stream has not come to it" +
                             (hang_advice_.empty() ? "" : "; or " + hang_advice_);
    log(fail_ ? LogLevel::error : LogLevel::warn, "collectives of '" + name_ + "': " + text);
    if (fail_) break_with(text);
  }
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  return std::clamp<Clock::duration>(patience / 20, std::chrono::milliseconds(10), between_looks);
}

void CollectiveReports::failed(const char* why) noexcept { log(LogLevel::warn, why); }

}  // namespace mpix
