// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "mesh.h"

namespace faces {

/// What is computed, and how often: the ten numbers of the input, nshare split into sign and size.
/// A process holds elements[0] x elements[1] x elements[2] spectral elements of points^3 points
/// each; neighbouring elements each have a copy of the points on their common face, edge or corner.
struct Problem {
  int grid[3];      ///< processes: lx ly lz
  int elements[3];  ///< of one process: mx my mz
  int points;       ///< along an element's edge: n
  int niface;       ///< times that the buffers (and windows) are made anew
  int niel;         ///< timed runs with each of them, every one from fresh values
  int nshare;       ///< shares in a run: one synchronization at its end is all that st needs
  bool compute;     ///< false: leave out the sums at points inside the process

  int ranks() const { return grid[0] * grid[1] * grid[2]; }
  long shares() const { return static_cast<long>(niface) * niel * nshare; }
};

/// What is wrong with the problem for so many ranks; empty: nothing.
std::string why_invalid(const Problem& problem, int ranks);

/// One of up to 26 neighbours, and the message to it; the one from it has the same length.
struct Neighbour {
  int rank;
  int direction;     ///< where it lies, see direction_of()
  int count;         ///< doubles
  long slot;         ///< of its messages in our buffers, both ways (in doubles)
  long remote_slot;  ///< of our message in its receive buffer
};

/// Where one process lies in the grid, and how its field and its messages lie in memory.
/// All processes have the same layout, with a slot for each of 26 directions whether or not there
/// is a neighbour: so an origin knows the place of its message in the target's window.
class Geometry {
 public:
  Geometry(const Problem& problem, int rank);

  Mesh mesh;
  std::vector<Neighbour> neighbours;
  long field_size;   ///< doubles
  long buffer_size;  ///< doubles, of all message slots

  std::vector<int> neighbour_ranks() const;
  long bytes_sent() const;
};

}  // namespace faces
