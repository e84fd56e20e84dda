// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "domain/reports.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace mpix {
namespace {

/// Of one report, lest a thousand ranks that wait for one fill the log.
constexpr std::uint32_t most_lines = 8;
constexpr auto between_looks = std::chrono::milliseconds(50);

std::string or_any(std::int32_t value, const char* name) {
  return value < 0 ? "any " + std::string(name) : std::string(name) + " " + std::to_string(value);
}

std::string barrier_of(const dev::Waiting& sought) {
  constexpr const char* of[] = {"MPIX_DEV_WORLD", "MPIX_DEV_DEVICE", "MPIX_DEV_NODE"};
  static_assert(dev::world == 0 && dev::device == 1 && dev::node == 2 && dev::comms == 3, "");
  // The note may be changing just now, or be of a kernel that was compiled before barriers told theirs.
  const auto comm = static_cast<std::uint32_t>(sought.query.tag);
  return std::string("a barrier of ") + (comm < dev::comms ? of[comm] : "its ranks") +
         " (MPIX_Dev_barrier, _win_open, _win_close, _bcast or _reduce)";
}

bool waits_in_barrier(const dev::RankNote& note, dev::Comm comm) {
  if (load_acquire(&note.waits) == 0) return false;
  const dev::Waiting sought = dev::waiting_in(note);
  return sought.call == dev::DevCall::barrier && sought.query.tag == static_cast<std::int32_t>(comm);
}

}  // namespace

std::string waiting_text(const dev::RankNote& note, std::uint32_t rank, std::uint32_t process) {
  const dev::Waiting sought = dev::waiting_in(note);
  const std::string who = "rank " + std::to_string(rank) + " (process " + std::to_string(process) + ") waits ";
  switch (sought.call) {
    case dev::DevCall::init:
      return who +
             "in MPIX_Dev_init for its turn: an earlier launch of it has not come to MPIX_Dev_finish, or has none";
    case dev::DevCall::barrier:
      return who + "in " + barrier_of(sought);
    case dev::DevCall::flush:
      return who + "in MPIX_Dev_flush, until targets have taken what it has put";
    case dev::DevCall::get:
    case dev::DevCall::get_notify:
      return who + "for what it reads of rank " + std::to_string(sought.query.source);
    case dev::DevCall::put:
    case dev::DevCall::notify:
    case dev::DevCall::put_notify:
    case dev::DevCall::put_notify_2d:
    case dev::DevCall::put_notify_all:
      return who + "for room in the lane to rank " + std::to_string(sought.query.source) +
             ", which takes none (has it as many that it has not asked for as mpix_dev_pending allows?), or on the way "
             "to "
             "its node";
    default:
      return who + "for " + std::to_string(sought.needs) + " of " + std::to_string(sought.total) +
             " notifications: " + or_any(sought.query.window, "window") + ", " + or_any(sought.query.source, "source") +
             ", " + or_any(sought.query.tag, "tag");
  }
}

std::string missing_text(const dev::RankNote* notes, std::uint32_t count, std::uint32_t first_rank, dev::Comm comm) {
  std::string text;
  std::uint32_t missing = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (waits_in_barrier(notes[i], comm) || missing++ >= most_lines) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(first_rank + i);
  }
  return missing > most_lines ? text + " and " + std::to_string(missing - most_lines) + " more" : text;
}

std::vector<std::string> new_log_lines(const dev::LogLine* log, std::uint64_t* last) {
  std::vector<std::string> texts;
  std::uint64_t lost = 0;
  while (true) {
    const dev::LogLine& line = log[(*last + 1) % dev::log_lines];
    const std::uint64_t number = load_acquire(&line.number);
    if (number == 0 || number <= *last) return texts;
    std::uint64_t words[4];
    for (int i = 0; i < 3; ++i) words[i] = load_acquire(reinterpret_cast<const std::uint64_t*>(&line.values[i]));
    words[3] = load_acquire(&line.who);
    if (load_acquire(&line.number) != number) continue;
    if (number != *last + 1) {  // it was written over; the one behind it may be there
      lost += number - dev::log_lines - *last;
      *last = number - dev::log_lines;
      continue;
    }
    if (lost > 0) texts.push_back("domain: " + std::to_string(lost) + " lines of the log are lost");
    lost = 0;
    *last = number;
    std::string text =
        "rank " + std::to_string(words[3] >> 32) + ": log " + std::to_string(static_cast<std::int32_t>(words[3])) + ":";
    for (int i = 0; i < 3; ++i) text += (i > 0 ? ", " : " ") + std::to_string(static_cast<std::int64_t>(words[i]));
    texts.push_back(std::move(text));
  }
}

DomainReports::DomainReports(dev::RankNote* notes, std::uint32_t count, std::uint32_t first_rank, std::uint32_t process,
                             std::uint64_t* released, const dev::LogLine* log, const Settings& settings,
                             std::function<void()> wake)
    : notes_(notes),
      count_(count),
      first_rank_(first_rank),
      process_(process),
      released_(released),
      wake_(std::move(wake)),
      log_(log),
      seconds_(settings.timeout_seconds),
      fail_(settings.fail_on_timeout),
      seen_(count) {}

DomainReports::~DomainReports() {
  if (begun_) end_service(*this);
  write_log();
}

void DomainReports::write_log() {
  const std::lock_guard<std::mutex> hold(log_mutex_);
  for (const std::string& line : new_log_lines(log_, &last_line_)) log(LogLevel::warn, line);
}

void DomainReports::begin() {
  if (begun_ || count_ == 0) return;
  begun_ = true;
  begin_service(*this);
}

bool DomainReports::is_released() const { return load_acquire(released_) != 0; }

void DomainReports::release() {
  store_release(released_, 1);
  wake_();
}

Poller::Clock::duration DomainReports::look(Clock::time_point now) {
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  std::uint32_t lines = 0, due = 0;
  bool in_barrier[dev::comms] = {};
  write_log();
  if (seconds_ <= 0) return between_looks;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint64_t wait = load_acquire(&notes_[i].waits);
    Seen& seen = seen_[i];
    if (wait != seen.wait) {
      seen = Seen{wait, now, {}};
      continue;
    }
    if (wait == 0 || now - seen.since - seen.reported < patience) continue;
    const std::string text = waiting_text(notes_[i], first_rank_ + i, process_);
    if (load_acquire(&notes_[i].waits) != wait) continue;
    seen.reported = now - seen.since;
    ++due;
    for (std::uint32_t comm = 0; comm < dev::comms; ++comm)
      in_barrier[comm] = in_barrier[comm] || waits_in_barrier(notes_[i], static_cast<dev::Comm>(comm));
    if (lines++ >= most_lines) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - seen.since).count();
    log(fail_ ? LogLevel::error : LogLevel::warn, "domain: " + text + ", for " + std::to_string(seconds) + " s");
  }
  if (due > most_lines)
    log(LogLevel::warn, "domain: and " + std::to_string(due - most_lines) + " more ranks of this process");
  for (std::uint32_t comm = 0; comm < dev::comms; ++comm) {
    if (!in_barrier[comm]) continue;
    const std::string missing = missing_text(notes_, count_, first_rank_, static_cast<dev::Comm>(comm));
    log(LogLevel::warn, "domain: of process " + std::to_string(process_) +
                            (missing.empty() ? " all ranks are in that barrier; ranks of other processes are not"
                                             : ", not in that barrier: rank " + missing));
  }
  if (due > 0 && fail_ && !is_released()) {
    log(LogLevel::error, "domain: MPIX_ON_TIMEOUT=error: its ranks wait no more, and their calls fail");
    release();
  }
  return std::clamp<Clock::duration>(patience / 20, std::chrono::milliseconds(10), between_looks);
}

void DomainReports::failed(const char* why) noexcept { log(LogLevel::warn, why); }

}  // namespace mpix
