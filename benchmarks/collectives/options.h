// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "call.h"

namespace collectives {

constexpr const char* preset_sizes = "8,32,128,512,2k,8k,32k,128k,512k,2m,8m,32m,64m";

struct Options {
  std::vector<std::size_t> sizes;   // bytes of a block
  std::vector<std::string> only;    // collectives; empty: all
  std::size_t most = 0;             // bytes of a buffer: the largest of the sizes
  int calls = 1000, in_graph = 50;  // in a measurement; in a graph
  int rounds = 7;
  double limit_ms = 20;  // of a measurement
  bool mpi_is_staged = true, check_only = false;
  std::string nccl = "libnccl.so.2", csv;
};

/// False: not understood.
inline bool read_sizes(const std::string& list, Options& options) {
  if (!benchmark::read_sizes(list, options.sizes)) return false;
  options.most = *std::max_element(options.sizes.begin(), options.sizes.end());
  return true;
}
inline bool read_only(const std::string& list, Options& options) {
  std::vector<std::string> known;
  for (const Topic& topic : topics) known.push_back(name_of(topic.kind));
  return benchmark::read_names(list, known, options.only);
}

inline Options read_options(int argc, char** argv, const char* program) {
  Options options;
  (void)read_sizes(preset_sizes, options);
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line(program,
                              "Collectives in streams, beside NCCL and MPI; each result is checked, word by word.\n");
  line.value(
          "sizes", "LIST", preset_sizes, benchmark::wanted_sizes,
          [&](const std::string& text) { return read_sizes(text, options); },
          "bytes of a block, with k or m: what MPI's count says. No row where a buffer of all blocks is larger than "
          "the largest")
      .value(
          "only", "LIST", "all", "a list of collectives",
          [&](const std::string& text) { return read_only(text, options); },
          "of allreduce, allgather, bcast, reduce, alltoall, reduce_scatter_block, barrier")
      .number("calls", options.calls, 1, most, "in a measurement")
      .number("graph", options.in_graph, 1, most, "captured in a graph, which is launched again and again")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .real("limit", options.limit_ms, 1, most, "milliseconds: a measurement that would take longer has fewer calls")
      .mpi_and_nccl(options.mpi_is_staged, options.nccl)
      .text("csv", "FILE", options.csv, "all that was measured, as comma-separated values")
      .flag("check", options.check_only, "only check the results");
  line.read(argc, argv);
  return options;
}

}  // namespace collectives
