// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

/// The same by one thread, for all planes.
namespace cg {

/// The right-hand side, at a point of a plane of the whole box.
inline double right_hand_side(const Box& box, int plane, std::size_t point) {
  std::uint64_t mixed = (static_cast<std::uint64_t>(plane) * box.plane() + point) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  return static_cast<double>((mixed ^ mixed >> 27) % 4096) / 4096;
}
inline std::vector<double> right_hand_side(const Box& box, int first_plane) {
  std::vector<double> b(box.points());
  for (std::size_t i = 0; i < b.size(); ++i)
    b[i] = right_hand_side(box, first_plane + static_cast<int>(i / box.plane()), i % box.plane());
  return b;
}

struct Solution {
  std::vector<double> x, history;  ///< r . r before each iteration, and behind the last
  int iterations() const { return static_cast<int>(history.size()) - 1; }
};

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline void multiply(const Box& box, const std::vector<double>& p, std::vector<double>& q) {
  const auto columns = static_cast<std::size_t>(box.columns), rows = static_cast<std::size_t>(box.rows);
  const std::size_t plane = box.plane();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const std::size_t column = i % columns, row = i / columns % rows;
    double value = 6 * p[i];
    if (i >= plane) value -= p[i - plane];
    if (i + plane < p.size()) value -= p[i + plane];
    if (row > 0) value -= p[i - columns];
    if (row + 1 < rows) value -= p[i + columns];
    if (column > 0) value -= p[i - 1];
    if (column + 1 < columns) value -= p[i + 1];
    q[i] = value;
  }
}

inline Solution solve_serially(const Box& all, int iterations) {
  std::vector<double> r = right_hand_side(all, 0), p = r, q(r.size());
  Solution found{std::vector<double>(r.size()), {dot(r, r)}};
  for (int k = 0; k < iterations; ++k) {
    const double rr = found.history.back();
    multiply(all, p, q);
    const double pq = dot(p, q), alpha = pq > 0 ? rr / pq : 0;
    for (std::size_t i = 0; i < r.size(); ++i) {
      found.x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
    }
    const double next = dot(r, r), beta = rr > 0 ? next / rr : 0;
    found.history.push_back(next);
    for (std::size_t i = 0; i < r.size(); ++i) p[i] = r[i] + beta * p[i];
  }
  return found;
}

}  // namespace cg
