// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace halo {

struct Options {
  std::string sizes, ways;  ///< ",NAME,NAME,"; empty: all
  int runs = 9, iterations = 20, threads = 1024;
  bool csv = false, model = false;
  std::string timeline;  ///< a file
  std::string nccl = "libnccl.so.2";

  bool wants(const char* size) const { return is_in(sizes, size); }
  bool wants_way(const char* group) const { return is_in(ways, group); }

 private:
  static bool is_in(const std::string& names, const char* name) {
    return names.empty() || names.find("," + std::string(name) + ",") != std::string::npos;
  }
};

inline void usage(std::FILE* to) {
  const Options preset;
  std::fprintf(to,
               "usage: mpiexec -n 2 halo [options]\n"
               "The halo engine beside loops over MPI and task queues; every word is checked.\n"
               "  --sizes=NAME,...  of wsmall, w9, w27, wlarge, elis200, elis400, elis800: all\n"
               "  --ways=NAME,...   of baselines, graphs, kernels, queues, engine, chunks, many, epochs, nccl: all\n"
               "  --runs=N          of which the median is shown: %d\n"
               "  --iterations=N    in a run, at least: %d\n"
               "  --threads=N       of a block, in task queues and with a kernel a message: %d\n"
               "  --nccl=FILE       NCCL's library: %s\n"
               "  --csv             comma-separated values\n"
               "  --model           instead: the model of Elis et al. beside what is measured\n"
               "  --timeline=FILE   instead: a trace of an iteration of the best baseline and of the best task\n"
               "                    queue, for chrome://tracing, Perfetto; of the first of the sizes\n",
               preset.runs, preset.iterations, preset.threads, preset.nccl.c_str());
}

/// False: something is not known.
inline bool read_options(int argc, char** argv, Options& options) {
  const auto number = [](const char* text, int least) { return std::max(least, std::atoi(text)); };
  for (int i = 1; i < argc; ++i) {
    const char* const arg = argv[i];
    if (std::strncmp(arg, "--sizes=", 8) == 0)
      options.sizes = "," + std::string(arg + 8) + ",";
    else if (std::strncmp(arg, "--ways=", 7) == 0)
      options.ways = "," + std::string(arg + 7) + ",";
    else if (std::strncmp(arg, "--runs=", 7) == 0)
      options.runs = number(arg + 7, 1);
    else if (std::strncmp(arg, "--iterations=", 13) == 0)
      options.iterations = number(arg + 13, 1);
    else if (std::strncmp(arg, "--threads=", 10) == 0)
      options.threads = std::min(number(arg + 10, 1), 1024);
    else if (std::strncmp(arg, "--nccl=", 7) == 0)
      options.nccl = arg + 7;
    else if (std::strcmp(arg, "--csv") == 0)
      options.csv = true;
    else if (std::strcmp(arg, "--model") == 0)
      options.model = true;
    else if (std::strncmp(arg, "--timeline=", 11) == 0)
      options.timeline = arg + 11;
    else
      return false;
  }
  return true;
}

}  // namespace halo
