// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "support/domain.h"

namespace classic {

constexpr const char* preset_sizes = "8,1k,16k,64k,128k,256k,1m,4m,16m";

struct Options {
  std::vector<std::size_t> sizes;  // bytes of a block
  std::vector<int> mixes;          // fixed numbers of staged copies
  int nodes = 1;                   // pretended, that the ranks and GPUs are dealt out to
  int gpus = 1;                    // of a node, pretended: of streams of the host
  int calls = 200, rounds = 5;     // in a measurement
  double limit_ms = 200;           // of a measurement
  std::string slow = "none";       // mechanism of copies that begin late
  bool pairs = false, init = false, check_only = false;
};

inline Options read_options(int argc, char** argv, const char* program) {
  Options options;
  (void)benchmark::read_sizes(preset_sizes, options.sizes);
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line(
      program,
      "All-reduce and all-gather led by processors, as I. Faraji's dissertation has them (chapters 3 to 5), beside\n"
      "libmpix and MPI; each result is checked.\n");
  line.value(
          "sizes", "LIST", preset_sizes, benchmark::wanted_sizes,
          [&](const std::string& text) { return benchmark::read_sizes(text, options.sizes); },
          "bytes of a block of floats, with k or m")
      .value(
          "mixes", "LIST", "none", "a list of numbers",
          [&](const std::string& text) { return benchmark::read_numbers(text, 0, most, options.mixes); },
          "also: so many copies by memory of the host in each stage, the others by IPC")
      .number("calls", options.calls, 1, most, "in a measurement")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .real("limit", options.limit_ms, 1, most, "milliseconds: a measurement that would take longer has fewer calls")
      .number("nodes", options.nodes, 1, most,
              "pretended nodes that the ranks are dealt out to, in blocks; libmpix is told by MPIX_NODE_SIZE")
      .flag("pairs", options.pairs,
            "instead: copies from ranks 2i to 2i + 1, some pairs by memory of the host, the others by IPC")
      .flag("init", options.init, "also: calls until what the set-up of GSB and of BTB takes has paid, against MPI")
      .value(
          "slow", "WHICH", options.slow, "none, hs or ipc",
          [&](const std::string& text) {
            options.slow = text;
            return text == "none" || text == "hs" || text == "ipc";
          },
          "a test of Dynamic: copies to be gathered by memory of the host, or by IPC, begin 2 ms late")
      .flag("check", options.check_only, "only check the results");
  if (!support::ranks_are_blocks)
    line.number("gpus", options.gpus, 1, most, "pretended GPUs that the ranks of a node are dealt out to");
  line.read(argc, argv);
  if (benchmark::processes() % options.nodes != 0)
    line.refuse("--nodes=" + std::to_string(options.nodes) + ": " + std::to_string(benchmark::processes()) +
                " ranks cannot be dealt out evenly");
  if (options.pairs && benchmark::processes() % 2 != 0)
    line.refuse("--pairs: " + std::to_string(benchmark::processes()) + " ranks are no pairs");
  return options;
}

}  // namespace classic
