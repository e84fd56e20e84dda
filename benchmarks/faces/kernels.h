// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

// The compute kernels, one source for the CPU and for GPUs.
//
// A kernel is a struct of few plain values with `point(row, p)` for 0 <= p < row.length. Rows hold what their points
// have in common; they are worked out once, in advance (rows.cpp), and lie in the device's memory. No two points write
// to the same place: a GPU gives a block to each row and a thread to each point; the host runs two nested loops.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FACES_KERNEL __host__ __device__ inline
#else
#define FACES_KERNEL inline
#endif

namespace faces {

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

/// The points of one element.
struct ElementRow {
  int length;
  int element[3];  ///< in the process
  long first;
};

struct Initialize {
  using Row = ElementRow;
  int n;
  int first_element[3];
  double* field;

  FACES_KERNEL void point(const Row& row, int p) const {
    const int j[3] = {first_element[0] + row.element[0], first_element[1] + row.element[1],
                      first_element[2] + row.element[2]};
    const int i[3] = {p % n, p / n % n, p / n / n};
    field[row.first + p] = initial_value(j, i);
  }
};

struct Fill {
  struct Row {
    int length;
    long first;
  };
  double* data;
  double value;

  FACES_KERNEL void point(const Row& row, int p) const { data[row.first + p] = value; }
};

/// Copy the surface of the process into the messages to its neighbours. A row is an element's part.
struct Pack {
  struct Row {
    int length;
    long from, to;
    long stride[2];  ///< in the field, along the message's first and second axis
  };
  int n;
  const double* field;
  double* send;

  FACES_KERNEL void point(const Row& row, int p) const {
    send[row.to + p] = field[row.from + p % n * row.stride[0] + p / n * row.stride[1]];
  }
};

/// Sum the copies of each point that elements of this process share, except on its surface.
/// Element j owns its copies with i < n - 1. A row is those of one element with i = 0 along its axis
/// and i > 0 along the axes before it, so that every point is met once.
struct SumInside {
  struct Row {
    int length;
    int first[2];  ///< point number along the two other axes
    int extent;    ///< points along the first of them
    long at;
    long below;  ///< from a copy to the one in the element below, along the row's own axis
    long stride[2];
    long other_below[2];
  };
  double* field;
  Scale scale;

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

/// Sum the copies of each point on the surface of the process: those of its own elements, and those
/// that the neighbours sent. Along each axis a point has one or two copies, so in all 1, 2, 4 or 8;
/// each lies in the field, or in the message from one direction. This one rule covers faces, edges
/// and corners. Lower copies are added first, in pairs: so all processes get the same sum, bit for
/// bit.
struct SumSurface {
  /// Copies along the row that have the same place on the two other axes.
  struct Line {
    const double* from;
    double* to;            ///< null when they are in messages
    long element, point;   ///< strides
    const double* end[2];  ///< the copy that lies beyond the lower, the upper end; null: none
  };

  /// A line of lattice points along an axis.
  struct Row {
    int length;
    int first;     ///< its first place on the lattice
    int elements;  ///< along the axis
    int lines;     ///< 1, 2 or 4
    bool has_neighbour[2];
    Line line[4];
  };
  int n;
  Scale scale;

  FACES_KERNEL void point(const Row& row, int p) const {
    // Between two elements there is a lower copy, the last point of the element below, and an upper one.
    const int last = n - 1;
    const int j = (row.first + p) / last;
    const int i = (row.first + p) % last;
    const bool lower_inside = i == 0 && j > 0;
    const bool upper_inside = j < row.elements;
    const bool has_lower = lower_inside || (i == 0 && j == 0 && row.has_neighbour[0]);
    const bool has_upper = upper_inside || row.has_neighbour[1];

    constexpr int most_lines = 4;  // a constant: what is indexed stays in registers
    double sum[most_lines] = {};
    for (int l = 0; l < most_lines; ++l) {
      if (l >= row.lines) continue;
      const Line& line = row.line[l];
      const double* const lower = lower_inside ? line.from + (j - 1) * line.element + last * line.point : line.end[0];
      const double* const upper = upper_inside ? line.from + j * line.element + i * line.point : line.end[1];
      if (has_lower) sum[l] = *lower;
      if (has_upper) sum[l] += *upper;
    }
    double total = row.lines == 1 ? sum[0] : sum[0] + sum[1];
    if (row.lines == 4) total += sum[2] + sum[3];
    total *= scale.factor[row.lines / 2 + (has_lower && has_upper ? 1 : 0)];
    for (int l = 0; l < most_lines; ++l) {
      if (l >= row.lines || row.line[l].to == nullptr) continue;
      const Line& line = row.line[l];
      if (lower_inside) line.to[(j - 1) * line.element + last * line.point] = total;
      if (upper_inside) line.to[j * line.element + i * line.point] = total;
    }
  }
};

}  // namespace faces
