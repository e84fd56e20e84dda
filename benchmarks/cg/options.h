// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "benchmarks/command_line.h"

namespace cg {

struct Options {
  int side = 64, planes = 0;  // of a process; 0: as the side
  int iterations = 100, in_graph = 10, digits = 0, rounds = 11;
  bool mpi_is_staged = true;
  std::string nccl = "libnccl.so.2", csv;
};

using benchmark::process;
using benchmark::processes;

inline Options read_options(int argc, char** argv) {
  Options options;
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line("cg",
                              "Conjugate gradients for a stencil of seven points; a process has planes of the box.\n");
  line.number("side", options.side, 1, 1024, "columns and rows")
      .number("planes", options.planes, 0, most, "of a process; 0: as the side")
      .number("iterations", options.iterations, 1, most, "in a measurement")
      .number("graph", options.in_graph, 1, most, "iterations captured in a graph, and in the body of a loop")
      .number("digits", options.digits, 0, 7,
              "by which the residual has fallen when a loop ends; 0: after all iterations")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .mpi_and_nccl(options.mpi_is_staged, options.nccl)
      .text("csv", "FILE", options.csv, "the table, as comma-separated values");
  line.read(argc, argv);
  if (options.planes == 0) options.planes = options.side;
  if (static_cast<double>(options.side) * options.side * options.planes > 1 << 30)
    line.refuse("more points than 32 bits number");
  // The rest of a measurement would be enqueued, and the row is called captured.
  if (options.iterations % options.in_graph != 0) line.refuse("--iterations has to be a multiple of --graph");
  return options;
}

}  // namespace cg
