// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "setup.h"

namespace faces {

/// Seconds in the timed runs of one measurement, over the ranks.
struct Timing {
  double average, least, most;
};

/// What was measured of one variant.
struct Result {
  const Variant* variant;
  std::vector<Timing> timings;  ///< one for each repetition
  int passed;                   ///< ranks whose result was right, in the worst repetition
};

/// Writes on one rank, and nothing on the others.
class Report {
 public:
  explicit Report(const Setup& setup)
      : active_(setup.rank == 0),
        setup_(setup),
        options_(setup.options),
        problem_(setup.problem),
        ranks_(setup.ranks) {}

  /// Collective: asks all ranks for the traffic.
  void settings(const Geometry& geometry);
  void running(const Variant& variant, int repetition);
  void checked(const Variant& variant, const Timing& timing, int passed);
  void table(const std::vector<Result>& results);

 private:
  void line(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void how_it_runs();
  void closing_line(const std::vector<Result>& results);
  void csv_table(const std::vector<Result>& results);
  double microseconds_a_share(double seconds) const { return seconds * 1e6 / static_cast<double>(problem_.shares()); }

  const bool active_;
  const Setup& setup_;
  const Options& options_;
  const Problem& problem_;
  const int ranks_;
};

}  // namespace faces
