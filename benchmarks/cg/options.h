// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <getopt.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/abort.h"

namespace cg {

struct Options {
  int side = 64, planes = 0;  // of a process; 0: as the side
  int iterations = 100, in_graph = 1, rounds = 11;
  bool mpi_is_staged = true;
  std::string nccl = "libnccl.so.2", csv;
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

[[noreturn]] inline void usage(int status) {
  const Options preset;
  if (process() == 0)
    std::fprintf(status ? stderr : stdout,
                 "usage: mpiexec -n N cg [options]\n"
                 "Conjugate gradients for a stencil of seven points; a process has planes of the box.\n"
                 "  --side=N        columns and rows                                          %d\n"
                 "  --planes=N      of a process; 0: as the side                              %d\n"
                 "  --iterations=N  in a measurement                                          %d\n"
                 "  --graph=N       iterations captured in a graph                            %d\n"
                 "  --rounds=N      of which the median is shown                              %d\n"
                 "  --mpi=WHICH     on GPUs: staged, through memory of the host, or device, as a GPU-aware MPI\n"
                 "                  takes it                                                  staged\n"
                 "  --nccl=FILE     NCCL's library                                            %s\n"
                 "  --csv=FILE      the table, as comma-separated values\n",
                 preset.side, preset.planes, preset.iterations, preset.in_graph, preset.rounds, preset.nccl.c_str());
  CHECK_MPI(MPI_Finalize());
  std::exit(status);
}

inline Options read_options(int argc, char** argv) {
  const option names[] = {{"side", required_argument, nullptr, 's'},
                          {"planes", required_argument, nullptr, 'p'},
                          {"iterations", required_argument, nullptr, 'i'},
                          {"graph", required_argument, nullptr, 'g'},
                          {"rounds", required_argument, nullptr, 'r'},
                          {"mpi", required_argument, nullptr, 'm'},
                          {"nccl", required_argument, nullptr, 'N'},
                          {"csv", required_argument, nullptr, 'c'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  const auto number = [](int least) {
    char* end = nullptr;
    const long value = std::strtol(optarg, &end, 10);
    if (*optarg == '\0' || *end != '\0' || value < least || value > 1 << 20) usage(2);
    return static_cast<int>(value);
  };
  opterr = process() == 0;
  for (int found; (found = getopt_long(argc, argv, "h", names, nullptr)) != -1;) switch (found) {
      case 's':
        options.side = number(1);
        if (options.side > 1024) usage(2);
        break;
      case 'p':
        options.planes = number(0);
        break;
      case 'i':
        options.iterations = number(1);
        break;
      case 'g':
        options.in_graph = number(1);
        break;
      case 'r':
        options.rounds = number(1);
        break;
      case 'm':
        options.mpi_is_staged = std::string(optarg) == "staged";
        if (!options.mpi_is_staged && std::string(optarg) != "device") usage(2);
        break;
      case 'N':
        options.nccl = optarg;
        break;
      case 'c':
        options.csv = optarg;
        break;
      case 'h':
        usage(0);
      default:
        usage(2);
    }
  if (optind != argc) usage(2);
  if (options.planes == 0) options.planes = options.side;
  // points are numbered by 32 bits
  if (static_cast<double>(options.side) * options.side * options.planes > 1 << 30) usage(2);
  return options;
}

}  // namespace cg
