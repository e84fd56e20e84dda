// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "reference.h"

#include <cmath>

namespace faces {

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

}  // namespace faces
