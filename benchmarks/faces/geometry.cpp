// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "geometry.h"

#include <climits>

namespace faces {
namespace {

/// In doubles: slots start on a cache line, so that two origins never write to the same one.
constexpr long slot_alignment = 8;

/// Strides of a box of element points, points before elements and x before y before z; along an
/// axis that the box is flat in, neither counts. The field itself is the box that is flat in none.
Layout box_layout(const Mesh& mesh, int direction, long offset) {
  Layout box{};
  box.offset = offset;
  long stride = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (side_of(direction, axis) != 0) continue;
    box.point[axis] = stride;
    stride *= mesh.n;
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (side_of(direction, axis) != 0) continue;
    box.element[axis] = stride;
    stride *= mesh.elements[axis];
  }
  box.count = stride;
  return box;
}

std::string number(const char* name, long value) { return std::string(name) + "=" + std::to_string(value); }

}  // namespace

std::string why_invalid(const Problem& problem, int ranks) {
  static const char* const grid_names[3] = {"lx", "ly", "lz"};
  static const char* const element_names[3] = {"mx", "my", "mz"};
  long processes = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const long length = problem.grid[axis];
    if (length < 1) return number(grid_names[axis], length) + ": a grid needs at least 1 process in each direction";
    processes = length > ranks ? LONG_MAX : processes;
    if (processes <= ranks) processes *= length;
    const long elements = problem.elements[axis];
    if (elements < 1) return number(element_names[axis], elements) + ": at least 1 element is needed";
    if (elements * length > INT_MAX) return number(element_names[axis], elements) + ": too many elements";
  }
  if (processes != ranks)
    return std::to_string(ranks) + " processes do not form a grid of " + std::to_string(problem.grid[0]) + " x " +
           std::to_string(problem.grid[1]) + " x " + std::to_string(problem.grid[2]);
  if (problem.points < 2) return number("n", problem.points) + ": an element needs at least 2 points along an edge";
  if (problem.niface < 1) return number("niface", problem.niface) + ": at least 1 repetition is needed";
  if (problem.niel < 1) return number("niel", problem.niel) + ": at least 1 repetition is needed";
  if (problem.nshare < 1) return "nshare=0: at least 1 share is needed (or -1, without compute kernels)";

  // MPI counts and the rows of a kernel are ints. Doubles are exact enough to see what exceeds
  // them.
  const double n = problem.points;
  const double m[3] = {double(problem.elements[0]), double(problem.elements[1]), double(problem.elements[2])};
  const double message = n * n * (m[0] * m[1] + m[1] * m[2] + m[2] * m[0]);
  if (3 * m[0] * m[1] * m[2] > INT_MAX || n * n * n > INT_MAX || 4 * message > INT_MAX)
    return "mx, my, mz or n too large: message lengths and element numbers must fit into an int";
  return "";
}

Geometry::Geometry(const Problem& problem, int rank) : mesh{}, field_size(0), buffer_size(0) {
  mesh.n = problem.points;
  const int coordinates[3] = {rank % problem.grid[0], rank / problem.grid[0] % problem.grid[1],
                              rank / problem.grid[0] / problem.grid[1]};
  for (int axis = 0; axis < 3; ++axis) {
    mesh.elements[axis] = problem.elements[axis];
    mesh.first_element[axis] = coordinates[axis] * problem.elements[axis];
    mesh.has_neighbour[axis][0] = coordinates[axis] > 0;
    mesh.has_neighbour[axis][1] = coordinates[axis] + 1 < problem.grid[axis];
  }

  for (int direction = 0; direction < directions; ++direction) {
    const bool self = direction == self_direction;
    mesh.layout[direction] = box_layout(mesh, direction, self ? 0 : buffer_size);
    const long count = mesh.layout[direction].count;
    if (self)
      field_size = count;
    else
      buffer_size += (count + slot_alignment - 1) / slot_alignment * slot_alignment;
  }

  for (int direction = 0; direction < directions; ++direction) {
    if (direction == self_direction) continue;
    int at[3];
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      at[axis] = coordinates[axis] + side_of(direction, axis);
      inside = inside && at[axis] >= 0 && at[axis] < problem.grid[axis];
    }
    if (!inside) continue;
    Neighbour neighbour{};
    neighbour.rank = (at[2] * problem.grid[1] + at[1]) * problem.grid[0] + at[0];
    neighbour.direction = direction;
    neighbour.count = static_cast<int>(mesh.layout[direction].count);
    neighbour.slot = mesh.layout[direction].offset;
    neighbour.remote_slot = mesh.layout[opposite(direction)].offset;
    neighbours.push_back(neighbour);
  }
}

std::vector<int> Geometry::neighbour_ranks() const {
  std::vector<int> ranks;
  for (const Neighbour& neighbour : neighbours) ranks.push_back(neighbour.rank);
  return ranks;
}

long Geometry::bytes_sent() const {
  long doubles = 0;
  for (const Neighbour& neighbour : neighbours) doubles += neighbour.count;
  return doubles * static_cast<long>(sizeof(double));
}

}  // namespace faces
