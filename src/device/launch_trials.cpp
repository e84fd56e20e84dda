// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/launch_trials.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/log.h"

namespace mpix {
namespace {

constexpr unsigned bit(Call call) { return 1u << static_cast<unsigned>(call); }

/// By way: the calls that go as graphs.
constexpr std::array<unsigned, LaunchTrials::ways> graphs = {
    0, bit(Call::wait), bit(Call::wait) | bit(Call::post),
    bit(Call::wait) | bit(Call::post) | bit(Call::complete) | bit(Call::complete_wait)};
const char* const names[] = {"none", "waits", "waits and posts", "all"};

constexpr std::size_t begin_of(std::size_t segment) { return 2 * segment; }
constexpr std::size_t end_of(std::size_t segment) { return 2 * segment + 1; }
constexpr std::uint64_t rounds_of_trial =
    LaunchTrials::rounds_before + LaunchTrials::segments * LaunchTrials::rounds_of_segment;
constexpr std::uint64_t rounds_between_looks = 64;
constexpr double unknown = std::numeric_limits<double>::infinity();

}  // namespace

double StreamMarks::now() noexcept {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool LaunchTrials::as_graph(Call call, Stream stream) {
  if (seen_ & bit(call)) begin_round(stream);
  seen_ |= bit(call);
  return (graphs[way_] & bit(call)) != 0;
}

void LaunchTrials::begin_round(Stream stream) {
  seen_ = 0;
  const std::uint64_t position = ++round_ % rounds_between_trials;
  if (position < rounds_before || position > rounds_of_trial) {
    if (to_judge_ && position % rounds_between_looks == 0) judge();
    return;
  }
  const std::uint64_t at = position - rounds_before;
  const auto segment = static_cast<std::size_t>(at / rounds_of_segment);
  if (at % rounds_of_segment == 0) {
    if (segment > 0 && (timed_[segment - 1] = timed_[segment - 1] && stream == stream_))
      set_mark(end_of(segment - 1), stream);
    begin_segment(segment);
  } else if (at % rounds_of_segment == rounds_to_settle && !to_judge_) {
    set_mark(begin_of(segment), stream);
    stream_ = stream;
    timed_[segment] = true;
  }
}

void LaunchTrials::begin_segment(std::size_t segment) {
  if (segment == 0) {
    marks_->clear();
    timed_ = {};
    to_judge_ = false;
  }
  way_ = segment < segments ? segment % ways : chosen_;
  to_judge_ = segment == segments;
}

void LaunchTrials::set_mark(std::size_t mark, Stream stream) {
  marks_->set(mark, stream);
  host_times_[mark] = marks_->now();
}

double LaunchTrials::time_of(std::size_t segment) const {
  const double in_stream = timed_[segment] ? marks_->between(begin_of(segment), end_of(segment)) : -1;
  return in_stream < 0 ? unknown : std::max(in_stream, host_times_[end_of(segment)] - host_times_[begin_of(segment)]);
}

/// Once the stream has passed all marks: until then it is as it was.
void LaunchTrials::judge() {
  for (std::size_t i = 0; i < segments; ++i)
    if (timed_[i] && !marks_->passed(end_of(i))) return;
  to_judge_ = false;
  std::array<double, ways> times;
  for (std::size_t way = 0; way < ways; ++way) {
    std::array<double, passes> passed;
    for (std::size_t pass = 0; pass < passes; ++pass) passed[pass] = time_of(pass * ways + way);
    std::sort(passed.begin(), passed.end());
    times[way] = passed[passes / 2];
  }
  marks_->clear();
  const auto best = static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  chosen_ = times[best] < worth_it * times[0] ? best : 0;
  way_ = chosen_;
  if (!logs(LogLevel::debug)) return;
  const auto rounds = static_cast<double>(rounds_of_segment - rounds_to_settle);
  std::string text = "launched as prepared graphs: " + std::string(names[chosen_]) + "; measured, us an epoch:";
  for (std::size_t way = 0; way < ways; ++way)
    if (times[way] < unknown) text += std::string(" ") + names[way] + " " + std::to_string(times[way] / rounds);
  log(LogLevel::debug, text);
}

}  // namespace mpix
