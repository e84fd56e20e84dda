// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "kernels.h"

namespace faces {

/// Sum the copies of each point on the surface of the process: those of its own elements, and those
/// that the neighbours sent. Along each axis a point has one or two copies, so in all 1, 2, 4 or 8;
/// each lies in the field, or in the message from one direction. This one rule covers faces, edges
/// and corners. Lower copies are added first, in pairs: so all processes get the same sum, bit for
/// bit.
struct SumSurface {
  Mesh mesh;
  double* field;
  const double* received;
  Scale scale;

  /// One of the copies of a lattice point along an axis: in the element j of this process, or (side
  /// not 0) in the neighbour's message, which is flat along this axis.
  struct Copy {
    int side, j, i;
  };
  struct Copies {
    int count;
    Copy copy[2];
  };

  /// Copies along the row that have the same place on the two other axes.
  struct Line {
    const double* from;
    double* to;            ///< null when they are in messages
    long element, point;   ///< strides
    const double* end[2];  ///< the copy that lies beyond the lower, the upper end
  };

  /// A line of lattice points. `moving` is the axis along it.
  struct Row {
    int length;
    int first;
    int moving;
    int lines;
    Line line[4];
  };

  /// Planes of constant x, of constant y without those, of constant z without both.
  FACES_KERNEL int rows() const { return 4 * mesh.lattice(2) + 2 * (mesh.lattice(1) - 2); }

  FACES_KERNEL Row row(int r) const {
    const int upper = r % 2;
    const int top[3] = {mesh.lattice(0) - 1, mesh.lattice(1) - 1, mesh.lattice(2) - 1};
    const int rows_of_x = 2 * mesh.lattice(2);
    if (r < rows_of_x) return make_row(1, 0, top[1] + 1, 0, upper * top[0], 2, r / 2);
    r -= rows_of_x;
    if (r < rows_of_x) return make_row(0, 1, top[0] - 1, 1, upper * top[1], 2, r / 2);
    r -= rows_of_x;
    return make_row(0, 1, top[0] - 1, 1, 1 + r / 2, 2, upper * top[2]);
  }

  FACES_KERNEL void point(const Row& row, int p) const {
    const Copies copies = copies_of(row.moving, row.first + p);
    double sum[4];
    for (int l = 0; l < row.lines; ++l) {
      sum[l] = 0;
      for (int c = 0; c < copies.count; ++c) {
        const Copy& copy = copies.copy[c];
        const Line& line = row.line[l];
        sum[l] += copy.side == 0 ? line.from[copy.j * line.element + copy.i * line.point]
                                 : *line.end[copy.side > 0];
      }
    }
    double total = row.lines == 1 ? sum[0] : sum[0] + sum[1];
    if (row.lines == 4) total += sum[2] + sum[3];
    total *= scale.factor[row.lines / 2 + copies.count - 1];
    for (int l = 0; l < row.lines; ++l) {
      const Line& line = row.line[l];
      if (line.to == nullptr) continue;
      for (int c = 0; c < copies.count; ++c) {
        const Copy& copy = copies.copy[c];
        if (copy.side == 0) line.to[copy.j * line.element + copy.i * line.point] = total;
      }
    }
  }

 private:
  FACES_KERNEL Copies copies_of(int axis, int place) const {
    const int last = mesh.n - 1;
    const int j = place / last;
    const int i = place % last;
    Copies copies{};
    if (i > 0) {
      copies.copy[copies.count++] = Copy{0, j, i};
      return copies;
    }
    if (j > 0)
      copies.copy[copies.count++] = Copy{0, j - 1, last};
    else if (mesh.has_neighbour[axis][0])
      copies.copy[copies.count++] = Copy{-1, 0, 0};
    if (j < mesh.elements[axis])
      copies.copy[copies.count++] = Copy{0, j, 0};
    else if (mesh.has_neighbour[axis][1])
      copies.copy[copies.count++] = Copy{1, 0, 0};
    return copies;
  }

  FACES_KERNEL Row make_row(int moving, int first, int length, int a, int place_a, int b,
                            int place_b) const {
    const int step[3] = {1, 3, 9};  // of a direction's number, along each axis
    const Copies copies_a = copies_of(a, place_a);
    const Copies copies_b = copies_of(b, place_b);
    Row row{};
    row.length = length;
    row.first = first;
    row.moving = moving;
    for (int cb = 0; cb < copies_b.count; ++cb) {
      for (int ca = 0; ca < copies_a.count; ++ca) {
        const Copy& at_a = copies_a.copy[ca];
        const Copy& at_b = copies_b.copy[cb];
        const int direction = self_direction + at_a.side * step[a] + at_b.side * step[b];
        const Layout& layout = mesh.layout[direction];
        const long place =
            layout.offset + layout.on_axis(a, at_a.j, at_a.i) + layout.on_axis(b, at_b.j, at_b.i);
        Line& line = row.line[row.lines++];
        line.to = direction == self_direction ? field + place : nullptr;
        line.from = line.to != nullptr ? line.to : received + place;
        line.element = layout.element[moving];
        line.point = layout.point[moving];
        for (int upper = 0; upper < 2; ++upper) {
          if (!mesh.has_neighbour[moving][upper]) continue;
          const Layout& beyond =
              mesh.layout[direction + (upper == 1 ? step[moving] : -step[moving])];
          line.end[upper] = received + beyond.offset + beyond.on_axis(a, at_a.j, at_a.i) +
                            beyond.on_axis(b, at_b.j, at_b.i);
        }
      }
    }
    return row;
  }
};

}  // namespace faces
