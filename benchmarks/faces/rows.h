// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <vector>

#include "geometry.h"
#include "kernels.h"

namespace faces {

// The rows of each kernel. Rows without a point are left out.

std::vector<ElementRow> element_rows(const Mesh& mesh);
std::vector<Fill::Row> fill_rows(long count);
std::vector<Pack::Row> pack_rows(const Geometry& geometry);
std::vector<SumInside::Row> inside_rows(const Mesh& mesh);
/// They point into the field and to the received messages, where the device has them.
std::vector<SumSurface::Row> surface_rows(const Mesh& mesh, double* field, const double* received);

}  // namespace faces
