// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csr.h"
#include "epochs.h"
#include "spmv_loop.h"
#include "stream.h"
#include "support/abort.h"
#include "team.h"

/// The same product with libmpix's stream epochs: an iteration is an epoch in which the first process of a column puts
/// the vector to the others, the multiplication, an epoch in which those of a row put their sums to its first one, a
/// kernel there that adds them in the order of the columns, and a barrier. The host enqueues all iterations, and waits
/// once, at the end.
///
/// Epochs, as in the stencil, so that its rows and these compare; MPIX_Bcast_stream and MPIX_Reduce_stream would do,
/// too. No trees: with few processes in a row or a column one trip is sooner over than several. The barrier is
/// MPIX_Barrier_stream: as an epoch without puts it would be a signal from each process to each other one.
namespace sparse {

/// Of a process.
struct StreamMemory {
  double* x;       ///< and behind it sums of the other columns, in the first one
  double* sums;    ///< of this process, in the other columns
  double* y;       ///< in the first column
  int* iteration;  ///< where each has an input of its own
};

struct AddSums {
  Grid grid;
  const double* sums;  ///< of the other columns, one behind the other
  double* y;
  int ranks;
  MPIX_DEV_METHOD void operator()(int rank) const {
    const Rows rows(grid, rank, ranks);
    const team::Team team = team::here();
    for (int i = rows.begin + team.index; i < rows.end; i += team.size) {
      double sum = y[i];
      const double* other = sums + i;
      for (int column = 1; column < grid.across; ++column, other += grid.block) sum += *other;
      y[i] = sum;
    }
  }
};

/// A graph has the same kernels each time it is launched, and which iteration it is they find in memory.
struct WriteNextInput {
  WriteInput input;
  const int* iteration;
  MPIX_DEV_METHOD void operator()(int rank) const {
    WriteInput next = input;
    next.iteration = *iteration;
    next(rank);
  }
};
struct Count {
  int* iteration;
  bool anew;
  MPIX_DEV_METHOD void operator()(int) const {
    if (team::here().index == 0) *iteration = anew ? 0 : *iteration + 1;
  }
};

/// Of all processes, on a communicator of its own. Freed behind the graphs that have it.
class Barrier {
 public:
  Barrier() {
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &all_));
    CHECK_MPI(MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN));  // CHECK_MPI says why
    CHECK_MPI(MPIX_Comm_prepare_stream(all_, MPI_INFO_NULL));
  }
  ~Barrier() { CHECK_MPI(MPI_Comm_free(&all_)); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void enqueue(launcher::Stream& stream) const { CHECK_MPI(MPIX_Barrier_stream(all_, stream.handle())); }

 private:
  MPI_Comm all_ = MPI_COMM_NULL;
};

class StreamLoop {
 public:
  static constexpr int in_graph = 10;  ///< iterations, which are short beside a launch

  StreamLoop(const Grid& grid, const Csr& matrix, const Random& random, const StreamMemory& memory, int ranks,
             int threads)
      : grid_(grid),
        matrix_(matrix),
        random_(random),
        memory_(memory),
        ranks_(ranks),
        row_(grid.row_of(process())),
        column_(grid.column_of(process())),
        down_column_(partners_in_column(grid, row_, column_)),
        along_row_(partners_in_row(grid, row_, column_)),
        stream_(ranks, threads),
        window_(memory.x, size() * static_cast<std::size_t>(column_ == 0 ? grid.across : 1)),
        timed_(stream_, in_graph, [this](int iterations) { enqueue(iterations, false); }),
        checked_(stream_, in_graph, [this](int iterations) { enqueue(iterations, true); }) {}
  StreamLoop(const StreamLoop&) = delete;
  StreamLoop& operator=(const StreamLoop&) = delete;

  /// `checked`: each iteration has an input of its own, and the results are added up.
  void run(int iterations, bool checked) { begin(checked).run(iterations); }
  void run_captured(int iterations, bool checked) { begin(checked).run_captured(iterations); }

 private:
  static int process() {
    int rank = 0;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    return rank;
  }
  /// The vector goes from the first one to all others.
  static epochs::Partners partners_in_column(const Grid& grid, int row, int column) {
    std::vector<int> others;
    for (int other = 1; other < grid.down; ++other) others.push_back(grid.at(other, column));
    return row == 0 ? epochs::Partners({}, others) : epochs::Partners({grid.at(0, column)}, {});
  }
  /// Sums go from all others to the first one.
  static epochs::Partners partners_in_row(const Grid& grid, int row, int column) {
    std::vector<int> others;
    for (int other = 1; other < grid.across; ++other) others.push_back(grid.at(row, other));
    return column == 0 ? epochs::Partners(others, {}) : epochs::Partners({}, {grid.at(row, 0)});
  }
  std::size_t size() const { return static_cast<std::size_t>(grid_.block); }

  launcher::Iterations& begin(bool checked) {
    if (checked) stream_.run(Count{memory_.iteration, true}, 1);
    return checked ? checked_ : timed_;
  }
  void enqueue(int iterations, bool checked) {
    for (int i = 0; i < iterations; ++i) {
      if (checked && row_ == 0) write_input();
      broadcast();
      along_row_.post(window_, stream_);
      double* const to = column_ == 0 ? memory_.y : memory_.sums;
      stream_.run(Multiply{grid_, matrix_, memory_.x, to, ranks_, column_ == 0 && checked}, ranks_);
      reduce();
      barrier_.enqueue(stream_);
    }
  }
  void write_input() {
    const WriteInput input{grid_, random_, std::int64_t{column_} * grid_.block, memory_.x, 0, ranks_};
    stream_.run(WriteNextInput{input, memory_.iteration}, ranks_);
    stream_.run(Count{memory_.iteration, false}, 1);
  }
  void broadcast() {
    down_column_.post(window_, stream_);
    down_column_.exchange(window_, stream_, [this] {
      for (int row = 1; row < grid_.down; ++row) window_.put(memory_.x, size(), grid_.at(row, column_), 0);
    });
  }
  void reduce() {
    along_row_.exchange(window_, stream_, [this] {
      window_.put(memory_.sums, size(), grid_.at(row_, 0), static_cast<std::size_t>(column_) * size());
    });
    if (along_row_.receives()) stream_.run(AddSums{grid_, memory_.x + size(), memory_.y, ranks_}, ranks_);
  }

  const Grid grid_;
  const Csr matrix_;
  const Random random_;
  const StreamMemory memory_;
  const int ranks_;
  const int row_, column_;  // of this process, in the grid
  const epochs::Partners down_column_, along_row_;
  const Barrier barrier_;
  launcher::Stream stream_;
  const epochs::Window window_;
  launcher::Iterations timed_, checked_;
};

}  // namespace sparse
