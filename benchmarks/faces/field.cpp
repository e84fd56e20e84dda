// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "field.h"

#include <cmath>
#include <limits>

#include "rows.h"

namespace faces {
namespace {

bool rescales(int step) { return (step + 1) % shares_between_rescales == 0; }

Scale scale_by(int exponent) {
  return Scale{{1.0, std::ldexp(1.0, exponent), std::ldexp(1.0, 2 * exponent), std::ldexp(1.0, 3 * exponent)}};
}

const Scale no_scale = scale_by(0);
const Scale rescale = scale_by(-shares_between_rescales);

constexpr double poison = std::numeric_limits<double>::quiet_NaN();

Initialize make_initialize(const Mesh& mesh, double* values) {
  return Initialize{mesh.n, {mesh.first_element[0], mesh.first_element[1], mesh.first_element[2]}, values};
}

}  // namespace

Field::Field(const Problem& problem, const Geometry& geometry, Device& device)
    : problem_(problem),
      geometry_(geometry),
      device_(device),
      values_(device, geometry.field_size),
      send_(device, geometry.buffer_size),
      initialize_(device, make_initialize(geometry.mesh, values_.data()), element_rows(geometry.mesh)) {}

ShareKernels::ShareKernels(Field& field, double* received)
    : ShareKernels(field, received, field.device(), field.geometry().mesh) {}

ShareKernels::ShareKernels(Field& field, double* received, Device& device, const Mesh& mesh)
    : field_(field),
      poison_send_(device, Fill{field.send(), poison}, fill_rows(field.geometry().buffer_size)),
      poison_received_(device, Fill{received, poison}, fill_rows(field.geometry().buffer_size)),
      pack_(device, Pack{mesh.n, field.values(), field.send()}, pack_rows(field.geometry())),
      inside_(device, SumInside{field.values(), no_scale}, inside_rows(mesh)),
      inside_rescale_(device, SumInside{field.values(), rescale}, inside_rows(mesh)),
      surface_(device, SumSurface{mesh.n, no_scale}, surface_rows(mesh, field.values(), received)),
      surface_rescale_(device, SumSurface{mesh.n, rescale}, surface_rows(mesh, field.values(), received)) {}

void ShareKernels::poison_buffers() {
  field_.device().launch(poison_send_);
  field_.device().launch(poison_received_);
}

void ShareKernels::pack() { field_.device().launch(pack_); }

void ShareKernels::sum_inside(int step) {
  if (field_.problem().compute) field_.device().launch(rescales(step) ? inside_rescale_ : inside_);
}

void ShareKernels::sum_surface(int step) { field_.device().launch(rescales(step) ? surface_rescale_ : surface_); }

}  // namespace faces
