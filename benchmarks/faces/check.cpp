// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "check.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "reference.h"
#include "rows.h"

namespace faces {
namespace {

double count_wrong(Field& field) {
  Device& device = field.device();
  const DeviceBuffer wrong(device, 1);
  double count = 0;
  device.copy(wrong.data(), &count, sizeof count);
  const Mesh& mesh = field.geometry().mesh;
  const int* const first = mesh.first_element;
  const CountWrong body{
      Reference(field.problem()), mesh.n, {first[0], first[1], first[2]}, field.values(), wrong.data()};
  const Kernel<CountWrong> kernel(device, body, element_rows(mesh));
  device.launch(kernel);
  device.copy(&count, wrong.data(), sizeof count);
  device.synchronize();
  return count;
}

void describe_worst(Field& field, const std::string& variant, int rank, double wrong) {
  const Geometry& geometry = field.geometry();
  std::vector<double> values(static_cast<std::size_t>(geometry.field_size));
  field.device().copy(values.data(), field.values(), values.size() * sizeof(double));
  field.device().synchronize();

  const Reference reference(field.problem());
  const int n = geometry.mesh.n;
  const int* const elements = geometry.mesh.elements;
  double worst = -1, worst_value = 0, worst_expected = 0;
  int worst_i[3] = {}, worst_j[3] = {};
  for (std::size_t at = 0; at < values.size(); ++at) {
    const int p = static_cast<int>(at % static_cast<std::size_t>(n * n * n));
    const int e = static_cast<int>(at / static_cast<std::size_t>(n * n * n));
    const int i[3] = {p % n, p / n % n, p / n / n};
    const int j[3] = {e % elements[0], e / elements[0] % elements[1], e / elements[0] / elements[1]};
    const double expected = reference.value(geometry.mesh.first_element, j, i);
    const double difference = relative_difference(values[at], expected);
    if (difference <= worst) continue;
    for (int axis = 0; axis < 3; ++axis) {
      worst_i[axis] = i[axis];
      worst_j[axis] = j[axis];
    }
    worst_value = values[at];
    worst_expected = expected;
    worst = difference;
    if (std::isnan(difference)) break;
  }
  std::fprintf(stderr,
               "faces: %s: rank %d: %.0f of %zu points wrong; the worst: point (%d,%d,%d) of element (%d,%d,%d) is "
               "%.17g, not %.17g\n",
               variant.c_str(), rank, wrong, values.size(), worst_i[0], worst_i[1], worst_i[2], worst_j[0], worst_j[1],
               worst_j[2], worst_value, worst_expected);
}

}  // namespace

bool is_right(Field& field, const std::string& variant, int rank) {
  const double wrong = count_wrong(field);
  if (wrong > 0) describe_worst(field, variant, rank, wrong);
  return wrong == 0;
}

void spoil(Field& field) {
  double* const last = field.values() + field.geometry().field_size - 1;
  double value = 0;
  field.device().copy(&value, last, sizeof value);
  field.device().synchronize();
  value *= 1 + 1e-14;
  field.device().copy(last, &value, sizeof value);
  field.device().synchronize();
}

}  // namespace faces
