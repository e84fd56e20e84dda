// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/command_line.h"
#include "sizes.h"

namespace halo {

struct Options {
  std::vector<std::string> sizes, ways;  ///< empty: all
  int runs = 9, iterations = 20, threads = 1024, gather = 8192;
  bool csv = false, model = false, mpi_is_staged = true;
  std::string timeline;  ///< a file
  std::string nccl = "libnccl.so.2";

  bool wants(const char* size) const { return is_in(sizes, size); }
  bool wants_way(const char* group) const { return is_in(ways, group); }

 private:
  static bool is_in(const std::vector<std::string>& names, const char* name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  }
};

inline Options read_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> known_sizes;
  for (const Size& size : sizes()) known_sizes.push_back(size.name);
  const std::vector<std::string> known_ways = {"baselines", "graphs", "kernels", "queues", "engine", "forms",
                                               "memory",    "chunks", "many",    "epochs", "nccl"};
  constexpr int most = benchmark::CommandLine::large;
  benchmark::CommandLine line("halo",
                              "The halo engine beside loops over MPI and task queues; every word is checked.\n");
  line.value(
          "sizes", "LIST", "all", "a list of sizes",
          [&](const std::string& text) { return benchmark::read_names(text, known_sizes, options.sizes); },
          "of wsmall, w9, w27, wlarge, elis200, elis400, elis800")
      .value(
          "ways", "LIST", "all", "a list of ways",
          [&](const std::string& text) { return benchmark::read_names(text, known_ways, options.ways); },
          "of baselines, graphs, kernels, queues, engine, forms, memory, chunks, many, epochs, nccl")
      .number("runs", options.runs, 1, most, "of which the median is shown")
      .number("iterations", options.iterations, 1, most, "in a run, at least")
      .number("threads", options.threads, 1, 1024, "of a block, in task queues and with a kernel a message")
      .number("gather", options.gather, 0, 65536, "bytes: the engine's mpix_gather")
      .mpi_and_nccl(options.mpi_is_staged, options.nccl)
      .flag("csv", options.csv, "comma-separated values")
      .flag("model", options.model, "instead: the model of Elis et al. beside what is measured")
      .text("timeline", "FILE", options.timeline,
            "instead: a trace of an iteration of the best baseline, of the best task queue and of a kernel that "
            "exchanges "
            "by itself, for chrome://tracing, Perfetto; of the first of the sizes");
  line.read(argc, argv);
  if (options.model && !options.timeline.empty()) line.refuse("either --model or --timeline");
  if (!options.ways.empty() && (options.model || !options.timeline.empty()))
    line.refuse("--ways is for the table only");
  return options;
}

}  // namespace halo
