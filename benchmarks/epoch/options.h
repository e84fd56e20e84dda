// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "../device/device.h"

namespace epoch {

struct Options {
  std::string device = "auto";
  std::vector<int> neighbours = {1, 3, 26};
  int epochs = 2000;
  int bytes = 8;
  int puts = 1;
  int repeats = 5;
  bool fused = false;
  bool lazy = false;
  bool staged = false;
  bool ordinary = true;
  bool csv = false;
};

/// The user asked for help, or needs it; it has been given.
struct Usage {
  int status;
};

/// Throws Usage.
Options read_options(int argc, char** argv, int rank);

/// What -d says, for before MPI_Init.
std::string device_option(int argc, char** argv);

/// Whether ordinary MPI epochs are measured: MPI need not be able to reach a GPU's memory.
inline bool has_ordinary(const Options& options, const bench::Device& device) {
  return options.ordinary && !device.is_gpu();
}

}  // namespace epoch
