// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "cells.h"
#include "epochs.h"
#include "particles_loop.h"
#include "stream.h"
#include "support/abort.h"

/// The same particles with libmpix's stream epochs: an iteration is an epoch for the cells at the ends, a kernel, an
/// epoch for what leaves, and a kernel. Cells lie in the window, from where they are put and to where they go, and
/// nothing is packed. The host enqueues all iterations, and waits once, at the end.
///
/// How many particles there are it never knows, and what an epoch puts is fixed when it is enqueued. So a cell is put
/// with all of its room, which moves more than the other loops do, which send what is there: with the presets 4 times
/// as much of the halos, and of the particles that leave nearly all is empty.
namespace particles {

class StreamLoop {
 public:
  /// The bins of all fields lie in so many bytes from those of `now` on, in all processes alike.
  StreamLoop(const Fields& fields, std::size_t bytes, const Law& law, int cells, int ranks, int threads)
      : fields_(fields),
        law_(law),
        cells_(cells),
        ranks_(ranks),
        last_(cells * ranks),
        left_(neighbour(-1)),
        right_(neighbour(1)),
        partners_(neighbours(), neighbours()),
        stream_(ranks, threads),
        window_(reinterpret_cast<double*>(fields.now.memory), bytes / sizeof(double)),
        iterations_(stream_, 2, [this](int iterations) { enqueue(iterations); }) {}

  void run(int iterations) { iterations_.run(iterations); }
  /// Two at a time, behind which `now` and `next` are where they were.
  void run_captured(int iterations) { iterations_.run_captured(iterations); }

 private:
  static int neighbour(int side) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    const int beside = process + side;
    return beside < 0 || beside == processes ? MPI_PROC_NULL : beside;
  }
  std::vector<int> neighbours() const {
    std::vector<int> found;
    for (const int process : {left_, right_})
      if (process != MPI_PROC_NULL) found.push_back(process);
    return found;
  }

  void enqueue(int iterations) {
    const bool is_first = left_ == MPI_PROC_NULL, is_last = right_ == MPI_PROC_NULL;
    Fields at = fields_;
    for (int i = 0; i < iterations; ++i, swap_now_and_next(at)) {
      partners_.post(window_, stream_);
      exchange(at.now, at.now);
      partners_.post(window_, stream_);
      stream_.run(UpdateCells{at, law_, cells_, ranks_, is_first, is_last}, ranks_);
      exchange(at.to_left, at.to_right);
      stream_.run(TakeIn{at, cells_}, ranks_);
    }
  }
  /// The first cell goes to the left, behind the last one there; the last one to the right, before the first.
  template <class Item>
  void exchange(const Bins<Item>& leftward, const Bins<Item>& rightward) {
    partners_.exchange(window_, stream_, [&] {
      put(leftward, 1, left_, last_ + 1);
      put(rightward, last_, right_, 0);
    });
  }
  template <class Item>
  void put(const Bins<Item>& bins, int cell, int target, int target_cell) const {
    const auto place = static_cast<std::size_t>(bins.cell(target_cell) - fields_.now.memory);
    window_.put(reinterpret_cast<const double*>(bins.cell(cell)), bins.stride() / sizeof(double), target,
                place / sizeof(double));
  }

  const Fields fields_;
  const Law law_;
  const int cells_, ranks_, last_;  // cells of a rank, ranks of this process, its last cell
  const int left_, right_;          // the processes with the cells before and behind
  const epochs::Partners partners_;
  launcher::Stream stream_;
  const epochs::Window window_;
  launcher::Iterations iterations_;
};

}  // namespace particles
