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

#include "benchmarks/clocks.h"
#include "messages.h"
#include "report.h"
#include "way.h"

/// What the CPU and the blocks do in an exchange, on one axis.
namespace halo {

using benchmark::Clocks;

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
  const int blocks = whole ? messages.count() : messages.parts();
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
