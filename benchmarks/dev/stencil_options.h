// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/abort.h"

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

inline int process() {
  int rank = 0;
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}
inline int processes() {
  int size = 1;
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return size;
}

[[noreturn]] inline void usage(const Program& program, int status) {
  const Options preset;
  std::string words;
  for (const std::string& word : program.words) words += " [" + word + "]";
  if (process() == 0)
    std::fprintf(status ? stderr : stdout,
                 "usage: mpiexec -n N %s%s [options]\n"
                 "  --columns=N     points of a row, of 8 bytes                                  %d\n"
                 "  --rows=N        of a process, at each level                                  %d\n"
                 "  --levels=N                                                                   %d\n"
                 "  --ranks=N       of a process; 0: as many as fit, with two rows or more each  %d\n"
                 "  --threads=N     of a rank, where ranks are blocks; %d at most                %d\n"
                 "  --iterations=N                                                               %d\n"
                 "  --rounds=N      of which the median is shown                                 %d\n"
                 "  --notify=WHICH  whole: a halo by one call, last: of its rows, each: of them   whole\n"
                 "  --check         compare the results with a serial computation, bit by bit\n",
                 program.name, words.c_str(), preset.columns, preset.rows, preset.levels, preset.ranks, most_threads,
                 preset.threads, preset.iterations, preset.rounds);
  CHECK_MPI(MPI_Finalize());
  std::exit(status);
}

inline Options read_options(int argc, char** argv, const Program& program) {
  const option names[] = {{"columns", required_argument, nullptr, 'c'},
                          {"rows", required_argument, nullptr, 'j'},
                          {"levels", required_argument, nullptr, 'k'},
                          {"ranks", required_argument, nullptr, 'r'},
                          {"threads", required_argument, nullptr, 't'},
                          {"iterations", required_argument, nullptr, 'i'},
                          {"rounds", required_argument, nullptr, 'n'},
                          {"notify", required_argument, nullptr, 'w'},
                          {"check", no_argument, nullptr, 'C'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  const auto number = [&program](int least) {
    char* end = nullptr;
    const long value = std::strtol(optarg, &end, 10);
    if (*optarg == '\0' || *end != '\0' || value < least || value > 1 << 20) usage(program, 2);
    return static_cast<int>(value);
  };
  Options options;
  opterr = process() == 0;
  for (int found; (found = getopt_long(argc, argv, "h", names, nullptr)) != -1;) switch (found) {
      case 'c':
        options.columns = number(3);
        break;
      case 'j':
        options.rows = number(2);
        break;
      case 'k':
        options.levels = number(1);
        break;
      case 'r':
        options.ranks = number(0);
        break;
      case 't':
        options.threads = number(1);
        if (options.threads > most_threads) usage(program, 2);
        break;
      case 'i':
        options.iterations = number(1);
        break;
      case 'n':
        options.rounds = number(1);
        break;
      case 'w':
        options.notify = std::strcmp(optarg, "each") == 0   ? Notify::each
                         : std::strcmp(optarg, "last") == 0 ? Notify::last
                                                            : Notify::whole;
        if (options.notify == Notify::whole && std::strcmp(optarg, "whole") != 0) usage(program, 2);
        break;
      case 'C':
        options.check = true;
        break;
      case 'h':
        usage(program, 0);
      default:
        usage(program, 2);
    }
  options.words.assign(argv + optind, argv + argc);
  for (const std::string& word : options.words)
    if (std::find(program.words.begin(), program.words.end(), word) == program.words.end()) usage(program, 2);
  if (options.ranks > options.rows / 2) usage(program, 2);
  return options;
}

}  // namespace diffusion
