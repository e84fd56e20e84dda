// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "field.h"

#include <cmath>
#include <limits>

namespace faces {
namespace {

bool rescales(int step) {
  return (step + 1) % shares_between_rescales == 0;
}

Scale scale_by(int exponent) {
  return Scale{{1.0, std::ldexp(1.0, exponent), std::ldexp(1.0, 2 * exponent),
                std::ldexp(1.0, 3 * exponent)}};
}

const Scale no_scale = scale_by(0);
const Scale rescale = scale_by(-shares_between_rescales);

Fill make_poison(double* data, long count) {
  return Fill{data, count, std::numeric_limits<double>::quiet_NaN()};
}

Pack make_pack(const Field& field) {
  Pack pack{};
  pack.mesh = field.geometry().mesh;
  pack.field = field.values();
  pack.send = field.send();
  for (const Neighbour& neighbour : field.geometry().neighbours) {
    int elements = 1;
    for (int axis = 0; axis < 3; ++axis)
      if (side_of(neighbour.direction, axis) == 0) elements *= pack.mesh.elements[axis];
    pack.direction[pack.messages] = neighbour.direction;
    pack.first_row[pack.messages + 1] = pack.first_row[pack.messages] + elements;
    ++pack.messages;
  }
  return pack;
}

SumInside make_inside(const Field& field, const Scale& scale) {
  return SumInside{field.geometry().mesh, field.values(), scale};
}

SumSurface make_surface(const Field& field, const double* received, const Scale& scale) {
  return SumSurface{field.geometry().mesh, field.values(), received, scale};
}

}  // namespace

Field::Field(const Problem& problem, const Geometry& geometry, Device& device)
    : problem_(problem),
      geometry_(geometry),
      device_(device),
      values_(device, geometry.field_size),
      send_(device, geometry.buffer_size),
      initialize_(Initialize{geometry.mesh, values_.data()}) {}

ShareKernels::ShareKernels(Field& field, double* received)
    : field_(field),
      poison_send_(make_poison(field.send(), field.geometry().buffer_size)),
      poison_received_(make_poison(received, field.geometry().buffer_size)),
      pack_(make_pack(field)),
      inside_(make_inside(field, no_scale)),
      inside_rescale_(make_inside(field, rescale)),
      surface_(make_surface(field, received, no_scale)),
      surface_rescale_(make_surface(field, received, rescale)) {}

void ShareKernels::poison_buffers() {
  field_.device().launch(poison_send_);
  field_.device().launch(poison_received_);
}

void ShareKernels::pack() {
  field_.device().launch(pack_);
}

void ShareKernels::sum_inside(int step) {
  if (field_.problem().compute) field_.device().launch(rescales(step) ? inside_rescale_ : inside_);
}

void ShareKernels::sum_surface(int step) {
  field_.device().launch(rescales(step) ? surface_rescale_ : surface_);
}

}  // namespace faces
