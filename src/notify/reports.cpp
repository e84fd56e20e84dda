// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/reports.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace mpix {
namespace {

/// Of one report, lest a thousand lanes that wait for one handler fill the log.
constexpr std::uint32_t most_lines = 8;
constexpr auto between_looks = std::chrono::milliseconds(50);

}  // namespace

std::string waiting_text(std::uint64_t note, std::uint32_t index, std::uint32_t lanes) {
  const auto [awaited, block] = dev::BlockNote::unpacked(note >> 2);
  const std::string number = std::to_string(awaited);
  const std::string which = block == dev::BlockNote::no_block ? "" : "block " + std::to_string(block);
  if (index >= lanes)
    return "flag " + std::to_string(index - lanes) + " is awaited to become " + number + ", by " +
           (which.empty() ? "" : which + " of ") + "a kernel";
  const std::string lane = "lane " + std::to_string(index) + (which.empty() ? "" : " (" + which + ")");
  if ((note & 3) == static_cast<std::uint64_t>(dev::ChannelWait::room))
    return lane + " waits for room for task " + number + " of its ring: nobody takes the tasks before";
  return lane + " waits for reply " + number + ": its task was posted, and nobody has replied";
}

WaitReports::WaitReports(Waits waits, std::string name, const Settings& settings,
                         std::function<void(const std::string& why)> fail)
    : waits_(std::move(waits)),
      name_(std::move(name)),
      seconds_(settings.timeout_seconds),
      fails_(settings.fail_on_timeout),
      fail_(std::move(fail)),
      seen_(waits_.count) {
  if (seconds_ > 0) begin_service(*this, between_looks);
}

WaitReports::~WaitReports() {
  if (seconds_ > 0) end_service(*this);
}

Poller::Clock::duration WaitReports::look(Clock::time_point now) {
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  std::uint32_t due = 0;
  std::string first;
  if (waits_.watch) waits_.watch(now);
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const std::uint64_t note = load_relaxed(waits_.notes + i);
    Seen& seen = seen_[i];
    if (note != seen.note || (note != 0 && waits_.moves && waits_.moves(note))) {
      seen = Seen{note, now, {}};
      continue;
    }
    if (note == 0 || now - seen.since - seen.reported < patience) continue;
    seen.reported = now - seen.since;
    const std::string text = waits_.text(note, i);
    if (due == 0) first = text;
    if (due++ >= most_lines) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - seen.since).count();
    log(fails_ ? LogLevel::error : LogLevel::warn, name_ + ": " + text + ", for " + std::to_string(seconds) + " s");
  }
  if (due > most_lines)
    log(LogLevel::warn, name_ + ": and " + std::to_string(due - most_lines) + " more " + waits_.what);
  if (due > 0 && fails_) fail_(first + "; MPIX_ON_TIMEOUT=error");
  return std::clamp<Clock::duration>(patience / 50, std::chrono::milliseconds(10), between_looks);
}

void WaitReports::failed(const char* why) noexcept { log(LogLevel::warn, why); }

}  // namespace mpix
