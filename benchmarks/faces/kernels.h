// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

// The compute kernels. One source: host loops today, CUDA or HIP kernels for a GPU compiler.
//
// A kernel is a struct of plain values with `row(r)`, what the points of row r have in common, and
// `point(row, p)` for 0 <= p < row.length. No two points write to the same place, so a GPU may give
// a block to each row and a thread to each point; the host runs two nested loops.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FACES_KERNEL __host__ __device__ inline
#else
#define FACES_KERNEL inline
#endif

namespace faces {

/// A direction is a number 0…26: 13 is the process itself, the others the places around it.
constexpr int directions = 27;
constexpr int self_direction = 13;
FACES_KERNEL int direction_of(int x, int y, int z) {
  return (z + 1) * 9 + (y + 1) * 3 + (x + 1);
}
/// -1, 0 or 1: where the direction points along the axis.
FACES_KERNEL int side_of(int direction, int axis) {
  return (axis == 0 ? direction : axis == 1 ? direction / 3 : direction / 9) % 3 - 1;
}
FACES_KERNEL int opposite(int direction) {
  return directions - 1 - direction;
}

/// Where point i of element j lies (in doubles) in the field, or in the message of a direction.
/// Axes along which a message is flat do not count.
struct Layout {
  long offset;
  long count;
  long point[3];
  long element[3];
  FACES_KERNEL long on_axis(int axis, int j, int i) const {
    return element[axis] * j + point[axis] * i;
  }
};

/// Along an axis the points of a process lie on a lattice of elements * (n - 1) + 1 places:
/// neighbouring elements share one. Its ends are the surface of the process.
struct Mesh {
  int n;  ///< points along an element's edge
  int elements[3];
  int first_element[3];      ///< of this process in the whole domain
  bool has_neighbour[3][2];  ///< along each axis: below, above
  Layout layout[directions];
  FACES_KERNEL int lattice(int axis) const { return elements[axis] * (n - 1) + 1; }
};

/// The value of point i of element j, numbered over the whole domain. The public Faces numbers them
/// in each process: then all start equal, and a message from the wrong one passes the check.
FACES_KERNEL double initial_value(const int j[3], const int i[3]) {
  return j[2] * 10000.0 + j[1] * 100.0 + j[0] + i[2] * 0.01 + i[1] * 0.0001 + i[0] * 0.000001;
}

/// Every share multiplies a point by the number of its copies: 2, 4 or 8. That overflows after 341
/// shares, so every so many of them we divide by the same power of two, which is exact.
constexpr int shares_between_rescales = 256;

/// By log2 of the number of copies.
struct Scale {
  double factor[4];
};

struct Initialize {
  Mesh mesh;
  double* field;

  struct Row {
    int length;
    long first;
    int element[3];
  };

  FACES_KERNEL int rows() const { return mesh.elements[0] * mesh.elements[1] * mesh.elements[2]; }

  FACES_KERNEL Row row(int r) const {
    const int j[3] = {r % mesh.elements[0], r / mesh.elements[0] % mesh.elements[1],
                      r / mesh.elements[0] / mesh.elements[1]};
    Row row{};
    row.length = mesh.n * mesh.n * mesh.n;
    row.first = static_cast<long>(r) * row.length;
    for (int axis = 0; axis < 3; ++axis) row.element[axis] = mesh.first_element[axis] + j[axis];
    return row;
  }

  FACES_KERNEL void point(const Row& row, int p) const {
    const int i[3] = {p % mesh.n, p / mesh.n % mesh.n, p / mesh.n / mesh.n};
    field[row.first + p] = initial_value(row.element, i);
  }
};

struct Fill {
  double* data;
  long count;
  double value;

  static constexpr int chunk = 1024;

  struct Row {
    int length;
    long first;
  };

  FACES_KERNEL int rows() const { return static_cast<int>((count + chunk - 1) / chunk); }

  FACES_KERNEL Row row(int r) const {
    const long first = static_cast<long>(r) * chunk;
    return Row{count - first < chunk ? static_cast<int>(count - first) : chunk, first};
  }

  FACES_KERNEL void point(const Row& row, int p) const { data[row.first + p] = value; }
};

/// Copy the surface of the process into the messages to its neighbours. A row is an element's part.
struct Pack {
  Mesh mesh;
  const double* field;
  double* send;
  int messages;
  int direction[directions];
  int first_row[directions + 1];

  struct Row {
    int length;
    long from, to;
    long stride[2];  ///< in the field, along the message's first and second axis
  };

  FACES_KERNEL int rows() const { return first_row[messages]; }

  FACES_KERNEL Row row(int r) const {
    int m = 0;
    while (r >= first_row[m + 1]) ++m;
    const Layout& message = mesh.layout[direction[m]];
    const Layout& own = mesh.layout[self_direction];
    Row row{1, 0, message.offset, {0, 0}};
    int element = r - first_row[m];
    int extent = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const int side = side_of(direction[m], axis);
      if (side != 0) {
        if (side > 0) row.from += own.on_axis(axis, mesh.elements[axis] - 1, mesh.n - 1);
        continue;
      }
      const int j = element % mesh.elements[axis];
      element /= mesh.elements[axis];
      row.from += own.on_axis(axis, j, 0);
      row.to += message.on_axis(axis, j, 0);
      row.stride[extent++] = own.point[axis];
      row.length *= mesh.n;
    }
    return row;
  }

  FACES_KERNEL void point(const Row& row, int p) const {
    send[row.to + p] = field[row.from + p % mesh.n * row.stride[0] + p / mesh.n * row.stride[1]];
  }
};

/// Sum the copies of each point that elements of this process share, except on its surface.
/// Element j owns its copies with i < n - 1. A row is those of one element with i = 0 along `axis`
/// and i > 0 along the axes before it, so that every point is met once.
struct SumInside {
  Mesh mesh;
  double* field;
  Scale scale;

  struct Row {
    int length;
    long at;
    long below;    ///< from a copy to the one in the element below, along the row's own axis
    int first[2];  ///< point number along the two other axes
    int extent;    ///< points along the first of them
    long stride[2];
    long other_below[2];
  };

  FACES_KERNEL int rows() const {
    return 3 * mesh.elements[0] * mesh.elements[1] * mesh.elements[2];
  }

  FACES_KERNEL Row row(int r) const {
    const int own_axis = r % 3;
    const int e = r / 3;
    const int j[3] = {e % mesh.elements[0], e / mesh.elements[0] % mesh.elements[1],
                      e / mesh.elements[0] / mesh.elements[1]};
    const Layout& own = mesh.layout[self_direction];
    Row row{};
    if (j[own_axis] == 0) return row;  // the surface
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
    return row;
  }

  FACES_KERNEL void point(const Row& row, int p) const {
    const int a = row.first[0] + p % row.extent;
    const int b = row.first[1] + p / row.extent;
    double* const copy = field + row.at + a * row.stride[0] + b * row.stride[1];
    if (a > 0 && b > 0) {
      copy[0] = copy[row.below] = (copy[row.below] + copy[0]) * scale.factor[1];
      return;
    }
    const int copies_a = a == 0 ? 2 : 1;
    const int copies_b = b == 0 ? 2 : 1;
    double total = 0;
    for (int cb = 0; cb < copies_b; ++cb) {
      double line = 0;
      for (int ca = 0; ca < copies_a; ++ca) {
        const double* const at = copy + ca * row.other_below[0] + cb * row.other_below[1];
        line += at[row.below] + at[0];
      }
      total += line;
    }
    total *= scale.factor[1 + (a == 0) + (b == 0)];
    for (int cb = 0; cb < copies_b; ++cb)
      for (int ca = 0; ca < copies_a; ++ca) {
        double* const at = copy + ca * row.other_below[0] + cb * row.other_below[1];
        at[row.below] = at[0] = total;
      }
  }
};

}  // namespace faces
