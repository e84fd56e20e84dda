// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>
#include <memory>
#include <string>
#include <vector>

#include "data.h"
#include "options.h"
#include "peer.h"

namespace peers {

/// stream: each epoch enqueued. graph: some epochs captured, the graph launched again and again. loop: one launch of
/// a graph with a WHILE node, an epoch in its body; unrolled: with many in its body.
enum class Mode { stream, graph, loop, unrolled };
constexpr Mode all_modes[] = {Mode::stream, Mode::graph, Mode::loop, Mode::unrolled};
const char* name_of(Mode mode);

struct Spread {
  double median, least, most;
};
Spread spread_of(std::vector<double> samples);

/// Of one row in one mode: µs an epoch, of the slowest rank.
struct Measured {
  std::string key, name;
  Mode mode;
  int epochs;  ///< in each measurement
  Spread time;
  Spread cpu;           ///< to enqueue them
  bool right;           ///< every word that was checked
  std::string failure;  ///< not empty: why it could not be measured
};

/// Measure all rows in all modes, in turn, so that what changes with time changes all. Collective.
std::vector<Measured> measure_all(const std::vector<Row>& rows, Data& data, const Options& options,
                                  cudaStream_t stream);

}  // namespace peers
