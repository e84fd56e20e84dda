// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// The messages of the papers, and what they say of them.
namespace halo {

struct Size {
  const char* name;
  std::vector<std::size_t> bytes;
  const char* paper;  ///< time of its best variant, of its baseline's
  /// Of its task queues, likewise: {queue, lanes} pinned, {queue, lanes} copied; with MPI_Isend, with MPI_Send.
  const char* task_queues[2][4];
};

inline std::vector<std::size_t> times(const std::vector<std::size_t>& sizes, std::size_t factor) {
  std::vector<std::size_t> all;
  for (const std::size_t one : sizes) all.push_back(one * factor);
  return all;
}

inline std::vector<Size> sizes() {
  std::vector<std::size_t> w9{8}, w27;
  for (std::size_t b = 1; b <= 8; ++b) w9.push_back(120000 * b);
  w27 = w9;
  for (std::size_t i = 0; i <= 8; ++i) {
    w27.push_back(40000 + 120000 * i);
    w27.push_back(80000 + 120000 * i);
  }
  const auto cube = [](std::size_t face, std::size_t edge, std::size_t corner) {
    std::vector<std::size_t> all(6, face);
    all.insert(all.end(), 12, edge);
    all.insert(all.end(), 8, corner);
    return all;
  };
  const char* const none = "-";
  return {{"wsmall", {8, 120, 240, 360}, "0.91", {{"0.91", "0.91", "1.28", "1.28"}, {"0.91", "0.91", "1.28", "1.28"}}},
          {"w9", w9, "0.92", {{"0.93", "0.92", "0.94", "0.93"}, {"0.92", "0.92", "0.93", "0.93"}}},
          {"w27", w27, "0.90", {{"0.95", "0.91", "0.91", "0.93"}, {"0.95", "0.90", "0.91", "0.91"}}},
          {"wlarge", times(w27, 10), "0.82", {{"0.84", "0.84", "0.83", "0.82"}, {"0.84", "0.84", "0.83", "0.82"}}},
          {"elis200", cube(60000, 1200, 24), "0.93", {{none, none, none, none}, {none, none, none, none}}},
          {"elis400", cube(240000, 2400, 24), "0.93", {{none, none, none, none}, {none, none, none, none}}},
          {"elis800", cube(960000, 4800, 24), "0.93", {{none, none, none, none}, {none, none, none, none}}}};
}

}  // namespace halo
