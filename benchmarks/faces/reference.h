// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <vector>

#include "geometry.h"

namespace faces {

/// What a share must give, computed without MPI, without messages and without the kernels: each
/// process works out the values of its points from the initial values of the whole domain.
class Reference {
 public:
  explicit Reference(const Problem& problem);

  /// After the run, at point i of element j, both numbered in the process at first_element.
  double value(const int first_element[3], const int j[3], const int i[3]) const;

 private:
  struct Copies {
    int count;
    int element[2], point[2];
  };
  Copies copies_along(int axis, int element, int point) const;
  bool on_surface(const int j[3], const int i[3]) const;

  const Problem& problem_;
  double growth_[9];  ///< by number of copies: of their sum, in all shares after the first
};

struct Check {
  long wrong;    ///< points
  double worst;  ///< relative difference
};

/// Compare every point; the first process to differ says where it differs most. Relative tolerance
/// 1e-15, as in the public Faces: |a - b| / (|a| + |b|). A value that is not finite is wrong.
Check check_field(const std::vector<double>& values, const Problem& problem,
                  const Geometry& geometry, const char* variant, int rank);

}  // namespace faces
