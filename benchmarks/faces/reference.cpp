// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "reference.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace faces {
namespace {

constexpr double tolerance = 1e-15;

/// Not-a-number for values that cannot be compared, which no tolerance accepts.
double relative_difference(double value, double expected) {
  if (!std::isfinite(value) || !std::isfinite(expected))
    return std::numeric_limits<double>::quiet_NaN();
  if (value == expected) return 0;
  return std::abs(value - expected) / (std::abs(value) + std::abs(expected));
}

}  // namespace

Reference::Reference(const Problem& problem) : problem_(problem), growth_{} {
  // The first share makes all copies of a point their sum. Each later one adds up equal values.
  for (int copies = 1; copies <= 8; copies *= 2) {
    double growth = 1;
    for (int share = 1; share <= problem.nshare; ++share) {
      if (share > 1) growth *= copies;
      if (share % shares_between_rescales == 0) growth /= std::pow(copies, shares_between_rescales);
    }
    growth_[copies] = growth;
  }
}

Reference::Copies Reference::copies_along(int axis, int element, int point) const {
  const int last = problem_.points - 1;
  const int elements = problem_.grid[axis] * problem_.elements[axis];
  if (point == 0 && element > 0) return Copies{2, {element - 1, element}, {last, 0}};
  if (point == last && element < elements - 1) return Copies{2, {element, element + 1}, {last, 0}};
  return Copies{1, {element, 0}, {point, 0}};
}

bool Reference::on_surface(const int j[3], const int i[3]) const {
  for (int axis = 0; axis < 3; ++axis) {
    if (j[axis] == 0 && i[axis] == 0) return true;
    if (j[axis] == problem_.elements[axis] - 1 && i[axis] == problem_.points - 1) return true;
  }
  return false;
}

double Reference::value(const int first_element[3], const int j[3], const int i[3]) const {
  const int element[3] = {first_element[0] + j[0], first_element[1] + j[1],
                          first_element[2] + j[2]};
  if (!problem_.compute && !on_surface(j, i)) return initial_value(element, i);
  const Copies x = copies_along(0, element[0], i[0]);
  const Copies y = copies_along(1, element[1], i[1]);
  const Copies z = copies_along(2, element[2], i[2]);
  double sum = 0;
  for (int cz = 0; cz < z.count; ++cz)
    for (int cy = 0; cy < y.count; ++cy)
      for (int cx = 0; cx < x.count; ++cx) {
        const int of_element[3] = {x.element[cx], y.element[cy], z.element[cz]};
        const int at_point[3] = {x.point[cx], y.point[cy], z.point[cz]};
        sum += initial_value(of_element, at_point);
      }
  return sum * growth_[x.count * y.count * z.count];
}

Check check_field(const std::vector<double>& values, const Problem& problem,
                  const Geometry& geometry, const char* variant, int rank) {
  const Reference reference(problem);
  const int n = problem.points;
  Check check{0, 0};
  std::size_t at = 0, worst_at = 0;
  double worst_expected = 0;
  int j[3], i[3];
  for (j[2] = 0; j[2] < problem.elements[2]; ++j[2])
    for (j[1] = 0; j[1] < problem.elements[1]; ++j[1])
      for (j[0] = 0; j[0] < problem.elements[0]; ++j[0])
        for (i[2] = 0; i[2] < n; ++i[2])
          for (i[1] = 0; i[1] < n; ++i[1])
            for (i[0] = 0; i[0] < n; ++i[0], ++at) {
              const double expected = reference.value(geometry.mesh.first_element, j, i);
              const double difference = relative_difference(values[at], expected);
              if (difference < tolerance) continue;
              ++check.wrong;
              if (check.wrong == 1 || difference > check.worst || std::isnan(difference)) {
                check.worst = difference;
                worst_at = at;
                worst_expected = expected;
              }
            }
  if (check.wrong > 0) {
    const std::size_t points = static_cast<std::size_t>(n);
    const std::size_t mx = static_cast<std::size_t>(problem.elements[0]);
    const std::size_t my = static_cast<std::size_t>(problem.elements[1]);
    const std::size_t element = worst_at / (points * points * points);
    std::fprintf(
        stderr,
        "faces: %s: rank %d: %ld of %zu points wrong; the worst: point (%zu,%zu,%zu) of element "
        "(%zu,%zu,%zu) is %.17g, not %.17g\n",
        variant, rank, check.wrong, values.size(), worst_at % points, worst_at / points % points,
        worst_at / points / points % points, element % mx, element / mx % my, element / mx / my,
        values[worst_at], worst_expected);
  }
  return check;
}

}  // namespace faces
