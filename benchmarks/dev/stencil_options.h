// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "benchmarks/command_line.h"

/// What the programs that compute the diffusion are told: the same, so that their figures can be compared.
namespace diffusion {

/// What a GPU's multiprocessor takes at once, as in the paper: while some ranks wait, the others compute.
constexpr int most_threads = 128, ranks_each = 8;

enum class Notify { whole, last, each };  // a halo by one call; or row by row, with a notification of these

struct Options {
  int columns = 128, rows = 320, levels = 26;  // of a process
  int ranks = 0;                               // of a process; 0: as many as fit
  int threads = most_threads;                  // of a rank, where it is a block
  int iterations = 100, rounds = 20;
  Notify notify = Notify::whole;
  bool check = false;
  std::vector<std::string> words;  // that are no options
};

/// Who reads them. A word is none of the options, and chooses what is run.
struct Program {
  const char* name;
  std::vector<std::string> words;
};

using benchmark::process;
using benchmark::processes;

inline Options read_options(int argc, char** argv, const Program& program) {
  Options options;
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line(program.name);
  line.number("columns", options.columns, 3, most, "points of a row, of 8 bytes")
      .number("rows", options.rows, 2, most, "of a process, at each level")
      .number("levels", options.levels, 1, most, "of the grid")
      .number("ranks", options.ranks, 0, most, "of a process; 0: as many as fit, with two rows or more each")
      .number("threads", options.threads, 1, most_threads, "of a rank, where ranks are blocks")
      .number("iterations", options.iterations, 1, most, "in a round")
      .number("rounds", options.rounds, 1, most, "of which the median is shown")
      .value(
          "notify", "WHICH", "whole", "whole, last or each",
          [&](const std::string& text) {
            options.notify = text == "each" ? Notify::each : text == "last" ? Notify::last : Notify::whole;
            return options.notify != Notify::whole || text == "whole";
          },
          "whole: a halo by one call, last: of its rows, each: of them")
      .flag("check", options.check, "compare the results with a serial computation, bit by bit")
      .words(options.words, program.words);
  line.read(argc, argv);
  if (options.ranks > options.rows / 2) line.refuse("more ranks than pairs of rows");
  return options;
}

}  // namespace diffusion
