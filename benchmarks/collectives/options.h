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

#include "call.h"
#include "support/abort.h"

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

inline int world_rank() {
  int rank = 0;
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}
inline int world_size() {
  int size = 1;
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return size;
}

[[noreturn]] inline void usage(const char* program, int status) {
  const Options preset;
  if (world_rank() == 0)
    std::fprintf(
        status ? stderr : stdout,
        "usage: mpiexec -n N %s [options]\n"
        "Collectives in streams, beside NCCL and MPI; each result is checked, word by word.\n"
        "  --sizes=LIST   bytes of a block, with k or m: what MPI's count says; multiples of 8\n"
        "                 %s\n"
        "                 A row is left out where a buffer of all blocks is larger than the largest\n"
        "  --only=LIST    of allreduce, allgather, bcast, reduce, alltoall, reduce_scatter_block, barrier: all\n"
        "  --calls=N      in a measurement                                                          %d\n"
        "  --graph=N      captured in a graph, which is launched again and again                    %d\n"
        "  --rounds=N     of which the median is shown                                              %d\n"
        "  --limit=MS     a measurement that would take longer has fewer calls                      %g\n"
        "  --mpi=WHICH    on GPUs: staged, through memory of the host, or device, as a GPU-aware    staged\n"
        "                 MPI takes it\n"
        "  --nccl=FILE    NCCL's library                                                            %s\n"
        "  --csv=FILE     all that was measured, as comma-separated values\n"
        "  --check        only check the results\n",
        program, preset_sizes, preset.calls, preset.in_graph, preset.rounds, preset.limit_ms, preset.nccl.c_str());
  CHECK_MPI(MPI_Finalize());
  std::exit(status);
}

inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    if (comma > at) parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// 0: none that can be measured.
inline std::size_t size_of(const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  const long unit = *end == 'k' ? 1024 : *end == 'm' ? 1024 * 1024 : 1;
  if (unit > 1) ++end;
  if (text.empty() || *end != '\0' || value < 1 || value > (1L << 33) / unit) return 0;
  const auto bytes = static_cast<std::size_t>(value * unit);
  return bytes % sizeof(double) == 0 ? bytes : 0;
}

/// False: not understood.
inline bool read_sizes(const std::string& list, Options& options) {
  options.sizes.clear();
  for (const std::string& text : split(list)) options.sizes.push_back(size_of(text));
  if (options.sizes.empty()) return false;
  options.most = *std::max_element(options.sizes.begin(), options.sizes.end());
  return *std::min_element(options.sizes.begin(), options.sizes.end()) > 0;
}
inline bool read_only(const std::string& list, Options& options) {
  options.only = split(list);
  return std::all_of(options.only.begin(), options.only.end(), [](const std::string& name) {
    return std::any_of(std::begin(topics), std::end(topics),
                       [&](const Topic& topic) { return name == name_of(topic.kind); });
  });
}

inline Options read_options(int argc, char** argv, const char* program) {
  const option names[] = {{"sizes", required_argument, nullptr, 's'},  {"only", required_argument, nullptr, 'o'},
                          {"calls", required_argument, nullptr, 'n'},  {"graph", required_argument, nullptr, 'g'},
                          {"rounds", required_argument, nullptr, 'r'}, {"limit", required_argument, nullptr, 'l'},
                          {"mpi", required_argument, nullptr, 'm'},    {"nccl", required_argument, nullptr, 'N'},
                          {"csv", required_argument, nullptr, 'c'},    {"check", no_argument, nullptr, 'C'},
                          {"help", no_argument, nullptr, 'h'},         {nullptr, 0, nullptr, 0}};
  Options options;
  bool understood = read_sizes(preset_sizes, options);
  const auto number = [&understood] {
    char* end = nullptr;
    const long value = std::strtol(optarg, &end, 10);
    understood = understood && *optarg != '\0' && *end == '\0' && value >= 1 && value <= 1 << 20;
    return static_cast<int>(value);
  };
  opterr = world_rank() == 0;
  for (int found; (found = getopt_long(argc, argv, "h", names, nullptr)) != -1;) switch (found) {
      case 's':
        understood = understood && read_sizes(optarg, options);
        break;
      case 'o':
        understood = understood && read_only(optarg, options);
        break;
      case 'n':
        options.calls = number();
        break;
      case 'g':
        options.in_graph = number();
        break;
      case 'r':
        options.rounds = number();
        break;
      case 'l':
        options.limit_ms = number();
        break;
      case 'm':
        options.mpi_is_staged = std::string(optarg) == "staged";
        understood = understood && (options.mpi_is_staged || std::string(optarg) == "device");
        break;
      case 'N':
        options.nccl = optarg;
        break;
      case 'c':
        options.csv = optarg;
        break;
      case 'C':
        options.check_only = true;
        break;
      case 'h':
        usage(program, 0);
      default:
        understood = false;
    }
  if (!understood || optind != argc) usage(program, 2);
  return options;
}

}  // namespace collectives
