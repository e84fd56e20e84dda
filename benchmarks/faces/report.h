// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace faces {

/// Seconds in the timed runs of one measurement, over the ranks.
struct Timing {
  double average, least, most;
};

/// What was measured of one variant.
struct Result {
  Variant variant;
  std::vector<Timing> timings;  ///< one for each repetition
  int passed;                   ///< ranks whose result was right, in the worst repetition
};

/// Writes on one rank, and nothing on the others.
class Report {
 public:
  Report(bool active, const Options& options, const Problem& problem, int ranks);

  /// Collective: asks all ranks for the traffic.
  void settings(const Geometry& geometry, const std::string& baseline_kernels);
  void running(Variant variant, int repetition);
  void checked(Variant variant, const Timing& timing, int passed);
  void table(const std::vector<Result>& results);

 private:
  void line(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void how_it_runs(const std::string& baseline_kernels);
  void csv_table(const std::vector<Result>& results);
  double microseconds_a_share(double seconds) const {
    return seconds * 1e6 / static_cast<double>(problem_.shares());
  }

  const bool active_;
  const Options& options_;
  const Problem& problem_;
  const int ranks_;
};

}  // namespace faces
