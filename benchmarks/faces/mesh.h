// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

namespace faces {

/// A direction is a number 0…26: 13 is the process itself, the others the places around it.
constexpr int directions = 27;
constexpr int self_direction = 13;
inline int direction_of(int x, int y, int z) { return (z + 1) * 9 + (y + 1) * 3 + (x + 1); }
/// -1, 0 or 1: where the direction points along the axis.
inline int side_of(int direction, int axis) {
  return (axis == 0 ? direction : axis == 1 ? direction / 3 : direction / 9) % 3 - 1;
}
inline int opposite(int direction) { return directions - 1 - direction; }

/// Where point i of element j lies (in doubles) in the field, or in the message of a direction.
/// Axes along which a message is flat do not count.
struct Layout {
  long offset;
  long count;
  long point[3];
  long element[3];
  long on_axis(int axis, int j, int i) const { return element[axis] * j + point[axis] * i; }
};

/// Along an axis the points of a process lie on a lattice of elements * (n - 1) + 1 places:
/// neighbouring elements share one. Its ends are the surface of the process.
struct Mesh {
  int n;  ///< points along an element's edge
  int elements[3];
  int first_element[3];      ///< of this process in the whole domain
  bool has_neighbour[3][2];  ///< along each axis: below, above
  Layout layout[directions];
  int lattice(int axis) const { return elements[axis] * (n - 1) + 1; }
};

}  // namespace faces
