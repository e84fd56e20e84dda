// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "geometry.h"
#include "kernels.h"

namespace faces {

/// What a share must give, computed without MPI, without messages and without the kernels: each
/// process works out the values of its points from the initial values of the whole domain.
class Reference {
 public:
  explicit Reference(const Problem& problem);

  /// After the run, at point i of element j, both numbered in the process at first_element.
  FACES_KERNEL double value(const int first_element[3], const int j[3], const int i[3]) const {
    const int element[3] = {first_element[0] + j[0], first_element[1] + j[1], first_element[2] + j[2]};
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

 private:
  struct Copies {
    int count;
    int element[2], point[2];
  };

  FACES_KERNEL Copies copies_along(int axis, int element, int point) const {
    const int last = problem_.points - 1;
    const int elements = problem_.grid[axis] * problem_.elements[axis];
    if (point == 0 && element > 0) return Copies{2, {element - 1, element}, {last, 0}};
    if (point == last && element < elements - 1) return Copies{2, {element, element + 1}, {last, 0}};
    return Copies{1, {element, 0}, {point, 0}};
  }

  FACES_KERNEL bool on_surface(const int j[3], const int i[3]) const {
    for (int axis = 0; axis < 3; ++axis) {
      if (j[axis] == 0 && i[axis] == 0) return true;
      if (j[axis] == problem_.elements[axis] - 1 && i[axis] == problem_.points - 1) return true;
    }
    return false;
  }

  Problem problem_;
  double growth_[9];  ///< by number of copies: of their sum, in all shares after the first
};

/// |a - b| / (|a| + |b|), as in the public Faces; not-a-number, which no tolerance accepts, for what
/// is not finite.
FACES_KERNEL double relative_difference(double value, double expected) {
  const double difference = value - expected;
  if (difference == 0) return 0;
  const double sum = (value < 0 ? -value : value) + (expected < 0 ? -expected : expected);
  return (difference < 0 ? -difference : difference) / sum;
}

constexpr double tolerance = 1e-15;

/// Compare every point with the reference. The one kernel whose points write to the same place.
struct CountWrong {
  using Row = ElementRow;
  Reference reference;
  int n;
  int first_element[3];
  const double* field;
  double* wrong;

  FACES_KERNEL void point(const Row& row, int p) const {
    const int i[3] = {p % n, p / n % n, p / n / n};
    const double expected = reference.value(first_element, row.element, i);
    if (relative_difference(field[row.first + p], expected) < tolerance) return;
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    atomicAdd(wrong, 1.0);
#else
    *wrong += 1;
#endif
  }
};

}  // namespace faces
