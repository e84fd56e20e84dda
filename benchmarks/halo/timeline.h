// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "messages.h"
#include "report.h"
#include "support/streams.h"
#include "way.h"

/// What the CPU and the blocks do in an exchange, on one axis.
namespace halo {

/// Answers with the time by its own clock.
struct TellTime {
  MPIX_Dev_channel channel;
  std::uint64_t first, count, *stamps, *failed;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      int result = MPIX_Dev_flag_wait(channel, 0, first + i);
      stamps[i] = MPIX_Dev_clock();
      if (result == MPIX_DEV_DONE) result = MPIX_Dev_flag_set(channel, 0, first + i);
      if (result != MPIX_DEV_DONE) return tell_failure(team, failed, result);
    }
  }
};

/// Two clocks, compared by questions and answers over flags: the middle of the shortest round trip is the time at which
/// the block looked, and half of it the error. At the start and at the end, as they may run at different rates.
class Clocks {
 public:
  Clocks() {
    CHECK_MPI(MPIX_Channel_create(0, 1, MPI_INFO_NULL, &channel_));
    CHECK_MPI(MPIX_Channel_get_device(channel_, &device_));
    stamps_ = static_cast<std::uint64_t*>(support::allocate_pinned(rounds * 8));
    begin_ = compared();
  }
  ~Clocks() {
    support::release_pinned(stamps_);
    CHECK_MPI(MPIX_Channel_free(&channel_));
  }
  Clocks(const Clocks&) = delete;
  Clocks& operator=(const Clocks&) = delete;

  void end() {
    end_ = compared();
    rate_ = (end_.cpu - begin_.cpu) / static_cast<double>(end_.gpu - begin_.gpu);
  }
  /// Nanoseconds after `zero`, of the CPU's clock.
  double of_cpu(std::uint64_t time) const { return static_cast<double>(static_cast<std::int64_t>(time - zero_)); }
  double of_kernel(std::uint64_t time) const {
    return begin_.cpu + rate_ * static_cast<double>(static_cast<std::int64_t>(time - begin_.gpu));
  }
  double error() const { return std::max(begin_.error, end_.error); }
  double rate() const { return rate_; }

 private:
  static constexpr std::size_t rounds = 1000;
  struct Point {
    std::uint64_t gpu = 0;
    double cpu = 0, error = 0;
  };

  Point compared() {
    const std::uint64_t first = asked_ + 1;
    support::launch_blocks(TellTime{device_, first, rounds, stamps_, failure_.word()}, 1, 32);
    std::vector<std::uint64_t> from, to;
    for (std::size_t i = 0; i < rounds; ++i) {
      const unsigned long long number = ++asked_;
      from.push_back(nanoseconds());
      CHECK_MPI(MPIX_Channel_flag_set(channel_, 0, number));
      for (unsigned long long told = 0;;) {
        CHECK_MPI(MPIX_Channel_flag_get(channel_, 0, &told));
        if (told >= number) break;
        failure_.check();
        support::let_others_run();
      }
      to.push_back(nanoseconds());
    }
    support::synchronize();
    std::size_t best = 0;
    for (std::size_t i = 1; i < rounds; ++i)
      if (to[i] - from[i] < to[best] - from[best]) best = i;
    const double half = static_cast<double>(to[best] - from[best]) / 2;
    return {stamps_[best], of_cpu(from[best]) + half, half};
  }

  MPIX_Channel channel_ = MPIX_CHANNEL_NULL;
  MPIX_Dev_channel device_;
  Failure failure_;
  std::uint64_t* stamps_ = nullptr;
  std::uint64_t asked_ = 0;
  const std::uint64_t zero_ = nanoseconds();
  Point begin_, end_;
  double rate_ = 1;
};

/// An exchange that was traced.
struct Shown {
  std::string name;
  Trace cpu;
  struct Block {
    bool packs;  ///< or unpacks
    int message, block;
    std::uint64_t begin, end;
  };
  std::vector<Block> blocks;
};

inline Shown traced(Messages& messages, const Way& way) {
  Shown shown{way.name, {}, {}};
  messages.spoil();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  way.exchange(nullptr);  // the first after a while is slower
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  way.exchange(&shown.cpu);
  messages.check(way.name);
  const bool whole = way.traced == Way::Blocks::of_messages;
  const int blocks = whole ? messages.count() : messages.blocks();
  for (const bool packs : {true, false})
    for (int b = 0; b < blocks; ++b) {
      const std::uint64_t* const stamps = messages.stamps() + 2 * (b + (packs ? 0 : blocks));
      const int m = whole ? b : messages.message_of(b);
      shown.blocks.push_back({packs, m, b, stamps[0], stamps[1]});
    }
  return shown;
}

/// Of the time in which any block packs, the share behind the begin of the first send.
inline double overlap(const Shown& shown, const Clocks& clocks) {
  double first_send = std::numeric_limits<double>::max();
  for (const Trace::Span& span : shown.cpu.spans)
    if (span.name.compare(0, 5, "send ") == 0) first_send = std::min(first_send, clocks.of_cpu(span.begin));
  std::vector<std::pair<double, double>> packing;
  for (const Shown::Block& block : shown.blocks)
    if (block.packs) packing.emplace_back(clocks.of_kernel(block.begin), clocks.of_kernel(block.end));
  std::sort(packing.begin(), packing.end());
  double all = 0, behind = 0, seen = packing.front().first;
  for (const auto& [begin, end] : packing) {
    if (end <= seen) continue;
    all += end - std::max(begin, seen);
    behind += std::max(0.0, end - std::max({begin, seen, first_send}));
    seen = end;
  }
  return behind / all;
}

/// For chrome://tracing and Perfetto. False: the file cannot be written.
inline bool write_timeline(const std::string& file, const std::vector<Shown>& all, const Clocks& clocks) {
  std::FILE* const out = std::fopen(file.c_str(), "w");
  if (!out) return false;
  double zero = std::numeric_limits<double>::max();
  for (const Shown& shown : all)
    for (const Trace::Span& span : shown.cpu.spans) zero = std::min(zero, clocks.of_cpu(span.begin));
  std::fprintf(out, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"clock_error_us\": %.3f}, \"traceEvents\": [",
               clocks.error() * 1e-3);
  const char* comma = "\n";
  const auto name = [&](const char* what, int process, int thread, const std::string& text) {
    std::fprintf(out, "%s{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": \"%s\"}}",
                 comma, what, process, thread, text.c_str());
    comma = ",\n";
  };
  const auto event = [&](const char* kind, const std::string& what, int process, int thread, double begin, double end) {
    std::fprintf(out,
                 ",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                 "\"dur\": %.3f}",
                 kind, what.c_str(), process, thread, (begin - zero) * 1e-3, (end - begin) * 1e-3);
  };
  int process = 0;
  for (const Shown& shown : all) {
    ++process;
    name("process_name", process, 0, shown.name);
    name("thread_name", process, 0, "CPU");
    int named = -1;
    for (const Shown::Block& block : shown.blocks) {
      if (block.block <= named) continue;
      named = block.block;
      name("thread_name", process, 1 + named, "block " + std::to_string(named));
    }
    for (const Trace::Span& span : shown.cpu.spans)
      event("cpu", span.name, process, 0, clocks.of_cpu(span.begin), clocks.of_cpu(span.end));
    for (const Shown::Block& block : shown.blocks)
      event("kernel", (block.packs ? "pack " : "unpack ") + std::to_string(block.message), process, 1 + block.block,
            clocks.of_kernel(block.begin), clocks.of_kernel(block.end));
  }
  std::fprintf(out, "\n]}\n");
  return std::fclose(out) == 0;
}

}  // namespace halo
