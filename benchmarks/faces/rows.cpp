// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "rows.h"

#include <algorithm>

namespace faces {
namespace {

constexpr int x = 0, y = 1, z = 2;

/// One of the copies of a lattice point along an axis: in the element j of this process, or (side
/// not 0) in the neighbour's message, which is flat along this axis.
struct Copy {
  int side, j, i;
};

/// The lower one first.
std::vector<Copy> copies_of(const Mesh& mesh, int axis, int place) {
  const int last = mesh.n - 1;
  const int j = place / last;
  const int i = place % last;
  if (i > 0) return {Copy{0, j, i}};
  std::vector<Copy> copies;
  if (j > 0)
    copies.push_back(Copy{0, j - 1, last});
  else if (mesh.has_neighbour[axis][0])
    copies.push_back(Copy{-1, 0, 0});
  if (j < mesh.elements[axis])
    copies.push_back(Copy{0, j, 0});
  else if (mesh.has_neighbour[axis][1])
    copies.push_back(Copy{1, 0, 0});
  return copies;
}

/// A row of the surface: along the axis `moving`, from `first` on, at fixed places on the axes a and b.
class SurfaceRow {
 public:
  SurfaceRow(const Mesh& mesh, double* field, const double* received)
      : mesh_(mesh), field_(field), received_(received) {}

  SumSurface::Row make(int moving, int first, int length, int a, int place_a, int b, int place_b) const {
    SumSurface::Row row{};
    row.length = length;
    row.first = first;
    row.elements = mesh_.elements[moving];
    for (int upper = 0; upper < 2; ++upper) row.has_neighbour[upper] = mesh_.has_neighbour[moving][upper];
    for (const Copy& at_b : copies_of(mesh_, b, place_b))
      for (const Copy& at_a : copies_of(mesh_, a, place_a)) row.line[row.lines++] = line(moving, a, at_a, b, at_b);
    return row;
  }

 private:
  SumSurface::Line line(int moving, int a, const Copy& at_a, int b, const Copy& at_b) const {
    const int step[3] = {1, 3, 9};  // of a direction's number, along each axis
    const int direction = self_direction + at_a.side * step[a] + at_b.side * step[b];
    const auto place_in = [&](const Layout& layout) {
      return layout.offset + layout.on_axis(a, at_a.j, at_a.i) + layout.on_axis(b, at_b.j, at_b.i);
    };
    const Layout& layout = mesh_.layout[direction];
    SumSurface::Line line{};
    line.to = direction == self_direction ? field_ + place_in(layout) : nullptr;
    line.from = line.to != nullptr ? line.to : received_ + place_in(layout);
    line.element = layout.element[moving];
    line.point = layout.point[moving];
    for (int upper = 0; upper < 2; ++upper)
      if (mesh_.has_neighbour[moving][upper])
        line.end[upper] = received_ + place_in(mesh_.layout[direction + (upper == 1 ? step[moving] : -step[moving])]);
    return line;
  }

  const Mesh& mesh_;
  double* const field_;
  const double* const received_;
};

}  // namespace

std::vector<ElementRow> element_rows(const Mesh& mesh) {
  std::vector<ElementRow> rows;
  ElementRow row{mesh.n * mesh.n * mesh.n, {}, 0};
  for (row.element[z] = 0; row.element[z] < mesh.elements[z]; ++row.element[z])
    for (row.element[y] = 0; row.element[y] < mesh.elements[y]; ++row.element[y])
      for (row.element[x] = 0; row.element[x] < mesh.elements[x]; ++row.element[x]) {
        rows.push_back(row);
        row.first += row.length;
      }
  return rows;
}

std::vector<Fill::Row> fill_rows(long count) {
  constexpr long chunk = 1024;
  std::vector<Fill::Row> rows;
  for (long first = 0; first < count; first += chunk)
    rows.push_back(Fill::Row{static_cast<int>(std::min(chunk, count - first)), first});
  return rows;
}

std::vector<Pack::Row> pack_rows(const Geometry& geometry) {
  const Mesh& mesh = geometry.mesh;
  const Layout& own = mesh.layout[self_direction];
  std::vector<Pack::Row> rows;
  for (const Neighbour& neighbour : geometry.neighbours) {
    const Layout& message = mesh.layout[neighbour.direction];
    // Along an axis that the message is flat in, there is one element: the outermost.
    int first[3], end[3];
    for (int axis = 0; axis < 3; ++axis) {
      const int side = side_of(neighbour.direction, axis);
      first[axis] = side > 0 ? mesh.elements[axis] - 1 : 0;
      end[axis] = side < 0 ? 1 : mesh.elements[axis];
    }
    int j[3];
    for (j[z] = first[z]; j[z] < end[z]; ++j[z])
      for (j[y] = first[y]; j[y] < end[y]; ++j[y])
        for (j[x] = first[x]; j[x] < end[x]; ++j[x]) {
          Pack::Row row{1, 0, message.offset, {0, 0}};
          int extent = 0;
          for (int axis = 0; axis < 3; ++axis) {
            const int side = side_of(neighbour.direction, axis);
            row.from += own.on_axis(axis, j[axis], side > 0 ? mesh.n - 1 : 0);
            if (side != 0) continue;
            row.to += message.on_axis(axis, j[axis], 0);
            row.stride[extent++] = own.point[axis];
            row.length *= mesh.n;
          }
          rows.push_back(row);
        }
  }
  return rows;
}

std::vector<SumInside::Row> inside_rows(const Mesh& mesh) {
  const Layout& own = mesh.layout[self_direction];
  std::vector<SumInside::Row> rows;
  for (const ElementRow& element : element_rows(mesh)) {
    const int* const j = element.element;
    for (int own_axis = 0; own_axis < 3; ++own_axis) {
      if (j[own_axis] == 0) continue;  // the surface
      SumInside::Row row{};
      row.length = 1;
      int other = 0;
      for (int axis = 0; axis < 3; ++axis) {
        const long below = own.on_axis(axis, -1, mesh.n - 1);
        row.at += own.on_axis(axis, j[axis], 0);
        if (axis == own_axis) {
          row.below = below;
          continue;
        }
        row.first[other] = axis < own_axis || j[axis] == 0 ? 1 : 0;
        const int extent = mesh.n - 1 - row.first[other];
        if (other == 0) row.extent = extent;
        row.stride[other] = own.point[axis];
        row.other_below[other] = below;
        row.length *= extent;
        ++other;
      }
      if (row.length > 0) rows.push_back(row);
    }
  }
  return rows;
}

/// Planes of constant x, of constant y without those, of constant z without both.
std::vector<SumSurface::Row> surface_rows(const Mesh& mesh, double* field, const double* received) {
  const SurfaceRow rows_of(mesh, field, received);
  const int top[3] = {mesh.lattice(x) - 1, mesh.lattice(y) - 1, mesh.lattice(z) - 1};
  std::vector<SumSurface::Row> rows;
  for (int at_z = 0; at_z <= top[z]; ++at_z)
    for (const int at_x : {0, top[x]}) rows.push_back(rows_of.make(y, 0, top[y] + 1, x, at_x, z, at_z));
  if (top[x] == 1) return rows;
  for (int at_z = 0; at_z <= top[z]; ++at_z)
    for (const int at_y : {0, top[y]}) rows.push_back(rows_of.make(x, 1, top[x] - 1, y, at_y, z, at_z));
  for (int at_y = 1; at_y < top[y]; ++at_y)
    for (const int at_z : {0, top[z]}) rows.push_back(rows_of.make(x, 1, top[x] - 1, y, at_y, z, at_z));
  return rows;
}

}  // namespace faces
