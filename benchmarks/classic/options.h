// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/collectives/options.h"
#include "support/domain.h"

namespace classic {

constexpr const char* preset_sizes = "8,1k,16k,64k,128k,256k,1m,4m,16m";

struct Options {
  std::vector<std::size_t> sizes;  // bytes of a block
  std::vector<int> mixes;          // fixed numbers of staged copies
  int gpus = 0;                    // that the ranks are dealt out to. 0: those of the node; of streams of the host: 1
  int calls = 200, rounds = 5;     // in a measurement
  double limit_ms = 200;           // of a measurement
  bool check_only = false;
};

[[noreturn]] inline void usage(const char* program, int status) {
  const Options preset;
  if (collectives::world_rank() == 0)
    std::fprintf(
        status ? stderr : stdout,
        "usage: mpiexec -n N %s [options]\n"
        "All-reduce and all-gather led by processors, as I. Faraji's dissertation has them (chapters 3 to 5), beside\n"
        "libmpix and MPI; each result is checked.\n"
        "  --sizes=LIST   bytes of a block of floats, with k or m; multiples of 8   %s\n"
        "  --mixes=LIST   also: so many copies by memory of the host in each stage, the others by IPC\n"
        "  --gpus=N       streams of the host: pretended GPUs that the ranks are dealt out to   1\n"
        "  --calls=N      in a measurement                                          %d\n"
        "  --rounds=N     of which the median is shown                              %d\n"
        "  --limit=MS     a measurement that would take longer has fewer calls      %g\n"
        "  --check        only check the results\n",
        program, preset_sizes, preset.calls, preset.rounds, preset.limit_ms);
  CHECK_MPI(MPI_Finalize());
  std::exit(status);
}

inline Options read_options(int argc, char** argv, const char* program) {
  const option names[] = {{"sizes", required_argument, nullptr, 's'},
                          {"mixes", required_argument, nullptr, 'm'},
                          {"gpus", required_argument, nullptr, 'g'},
                          {"calls", required_argument, nullptr, 'n'},
                          {"rounds", required_argument, nullptr, 'r'},
                          {"limit", required_argument, nullptr, 'l'},
                          {"check", no_argument, nullptr, 'C'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  std::string sizes = preset_sizes;
  bool understood = true;
  const auto number = [&understood](const std::string& text, long least) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    understood = understood && !text.empty() && *end == '\0' && value >= least && value <= 1 << 20;
    return static_cast<int>(value);
  };
  opterr = collectives::world_rank() == 0;
  for (int found; (found = getopt_long(argc, argv, "h", names, nullptr)) != -1;) switch (found) {
      case 's':
        sizes = optarg;
        break;
      case 'm':
        for (const std::string& text : collectives::split(optarg)) options.mixes.push_back(number(text, 0));
        break;
      case 'g':
        options.gpus = number(optarg, 1);
        understood = understood && !support::ranks_are_blocks;
        break;
      case 'n':
        options.calls = number(optarg, 1);
        break;
      case 'r':
        options.rounds = number(optarg, 1);
        break;
      case 'l':
        options.limit_ms = number(optarg, 1);
        break;
      case 'C':
        options.check_only = true;
        break;
      case 'h':
        usage(program, 0);
      default:
        understood = false;
    }
  for (const std::string& text : collectives::split(sizes)) options.sizes.push_back(collectives::size_of(text));
  if (options.sizes.empty() || *std::min_element(options.sizes.begin(), options.sizes.end()) == 0) understood = false;
  if (!understood || optind != argc) usage(program, 2);
  return options;
}

}  // namespace classic
