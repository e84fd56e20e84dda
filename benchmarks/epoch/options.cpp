// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace epoch {
namespace {

constexpr const char* letters = "d:n:k:b:p:r:flmoch";

[[noreturn]] void usage(int status, int rank) {
  const Options preset;
  if (rank == 0)
    std::fprintf(status ? stderr : stdout,
                 "usage: mpiexec -n RANKS epoch [options]\n"
                 "Each rank exchanges with the ranks next to it, all in one epoch.\n"
                 "  -d NAME  device: auto, host, cuda, hip              %s\n"
                 "  -n N     epochs enqueued before one synchronization %d\n"
                 "  -k LIST  neighbours                                 1,3,26; at most all others\n"
                 "  -b N     bytes of a put                             %d\n"
                 "  -p N     puts to each neighbour                     %d\n"
                 "  -r N     repetitions, of which the median is shown  %d\n"
                 "  -f       MPIX_Win_complete_wait_stream in place of complete and wait\n"
                 "  -l       window with the promise mpix_lazy_post\n"
                 "  -m       host: window over malloc memory (staged) in place of mpix:device\n"
                 "  -o       host: leave out the ordinary MPI epochs (post, start, put, complete, wait)\n"
                 "  -c       comma-separated values\n",
                 preset.device.c_str(), preset.epochs, preset.bytes, preset.puts, preset.repeats);
  throw Usage{status};
}

}  // namespace

Options read_options(int argc, char** argv, int rank) {
  const auto number = [rank](const std::string& text, int least) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < least || value > 1 << 30) usage(2, rank);
    return static_cast<int>(value);
  };
  const auto numbers = [&](const std::string& text) {
    std::vector<int> list;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      list.push_back(number(text.substr(at, comma - at), 0));
      at = comma + 1;
    }
    return list;
  };
  Options options;
  optind = 1;
  opterr = rank == 0;
  for (int option; (option = getopt(argc, argv, letters)) != -1;) switch (option) {
      case 'd':
        options.device = optarg;
        break;
      case 'n':
        options.epochs = number(optarg, 1);
        break;
      case 'k':
        options.neighbours = numbers(optarg);
        break;
      case 'b':
        options.bytes = number(optarg, 0);
        break;
      case 'p':
        options.puts = number(optarg, 0);
        break;
      case 'r':
        options.repeats = number(optarg, 1);
        break;
      case 'f':
        options.fused = true;
        break;
      case 'l':
        options.lazy = true;
        break;
      case 'm':
        options.staged = true;
        break;
      case 'o':
        options.ordinary = false;
        break;
      case 'c':
        options.csv = true;
        break;
      case 'h':
        usage(0, rank);
      default:
        usage(2, rank);
    }
  if (optind != argc) usage(2, rank);
  return options;
}

std::string device_option(int argc, char** argv) {
  std::string device = "auto";
  optind = 1;
  opterr = 0;
  for (int option; (option = getopt(argc, argv, letters)) != -1;)
    if (option == 'd') device = optarg;
  return device;
}

}  // namespace epoch
