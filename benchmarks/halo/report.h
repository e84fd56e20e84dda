// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "sizes.h"
#include "way.h"

namespace halo {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of a way, by runs, for an exchange.
struct Times {
  std::vector<double> us, cpu_us;
  std::vector<double> overlap;  ///< empty: unseen
  std::vector<double> each;     ///< of all exchanges of all runs, microseconds; empty: unseen
};

inline void print_head(bool csv) {
  if (csv)
    std::printf("size,way,us,least,most,slowest,ratio,paper,overlap,chained,longest,launches,cpu_us\n");
  else
    std::printf("%-8s %-40s %10s %10s %10s %8s %6s %7s %8s %8s %8s %8s %8s\n", "size", "way", "us", "least", "most",
                "slowest", "ratio", "(paper)", "overlap", "chained", "longest", "launches", "CPU us");
}

/// `times`: of the ways, in microseconds an exchange. Without baselines there are no ratios.
inline void print_rows(const Size& size, const Ways& ways, const std::vector<Times>& times, bool csv) {
  double best[2] = {};  // of the baselines, by their kind of sends; 0: none
  for (std::size_t w = 0; w < ways.size(); ++w)
    if (double& least = best[ways[w].blocks]; ways[w].kind == Way::Kind::baseline)
      least = least > 0 ? std::min(least, median(times[w].us)) : median(times[w].us);
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const Way& way = ways[w];
    const auto [least, most] = std::minmax_element(times[w].us.begin(), times[w].us.end());
    const std::string none = csv ? "" : "-", percent = csv ? "" : " %";
    std::string slowest = none, ratio = none, overlap = none, chained = none, longest = none;
    if (best[way.blocks] > 0) {
      char text[32];
      std::snprintf(text, sizeof text, csv ? "%.3f" : "%.2f", median(times[w].us) / best[way.blocks]);
      ratio = text;
    }
    if (const std::vector<double>& each = times[w].each; !each.empty()) {
      char text[32];
      std::snprintf(text, sizeof text, csv ? "%.2f" : "%.1f x",
                    *std::max_element(each.begin(), each.end()) / median(each));
      slowest = text;
    }
    if (!times[w].overlap.empty())
      overlap = std::to_string(static_cast<int>(100 * median(times[w].overlap) + 0.5)) + percent;
    if (way.events) {
      const double share = 100 * static_cast<double>(way.events->chained) / static_cast<double>(way.events->all);
      chained = std::to_string(static_cast<int>(share + 0.5)) + percent;
      longest = std::to_string(way.events->longest);
    }
    std::printf(csv ? "%s,\"%s\",%.2f,%.2f,%.2f,%s,%s,%s,%s,%s,%s,%.2f,%.2f\n"
                    : "%-8s %-40s %10.1f %10.1f %10.1f %8s %6s %7s %8s %8s %8s %8.2f %8.1f\n",
                size.name, way.name.c_str(), median(times[w].us), *least, *most, slowest.c_str(), ratio.c_str(),
                way.paper, overlap.c_str(), chained.c_str(), longest.c_str(), way.launches, median(times[w].cpu_us));
  }
}

}  // namespace halo
