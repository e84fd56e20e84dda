// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace peers {

struct Options {
  std::vector<std::string> exchanges;  ///< near, full, ring
  std::vector<std::size_t> faces;      ///< bytes
  std::vector<std::size_t> large;      ///< bytes of one put, for the bandwidth rows
  std::vector<std::string> rows;       ///< keys; empty: all
  std::vector<std::string> modes;      ///< stream, graph, loop, unrolled
  int epochs;
  int repeats;
  int epochs_in_graph, epochs_in_body;
  double limit_ms;  ///< of one measurement: fewer epochs where it would take longer
  int gpus;         ///< 0: all that are there
  std::string mpi_memory;
  bool csv;
};

/// Throws std::runtime_error with what is wrong. `help`: -h was given.
Options read_options(int argc, char** argv, bool* help);
void print_help();

bool contains(const std::vector<std::string>& names, const std::string& name);

}  // namespace peers
