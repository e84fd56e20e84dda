// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "field.h"

namespace faces {

/// Compare every point with the reference, on the device. Where points differ, says on standard error
/// which differs most, on which rank, for which variant. Relative tolerance 1e-15, as in the public Faces.
bool is_right(Field& field, const std::string& variant, int rank);

/// Make the last point a little wrong.
void spoil(Field& field);

}  // namespace faces
