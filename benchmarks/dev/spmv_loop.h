// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "csr.h"
#include "launcher.h"
#include "support/abort.h"
#include "team.h"

/// The same product as programs without ranks in kernels have it: the host launches the multiplication, and moves
/// vectors by MPI_Bcast and MPI_Reduce. On a GPU by way of pinned memory of the host, which kernels reach.
namespace sparse {

struct Multiply {
  Grid grid;
  Csr matrix;
  const double* x;
  double* to;
  int ranks;
  bool adds;
  MPIX_DEV_METHOD void operator()(int rank) const {
    const Rows rows(grid, rank, ranks);
    multiply(matrix, rows, x, to + rows.begin, adds);
  }
};

struct CopyVector {
  Grid grid;
  const double* from;
  double* to;
  int ranks;
  bool adds;
  MPIX_DEV_METHOD void operator()(int rank) const {
    const Rows rows(grid, rank, ranks);
    const team::Team team = team::here();
    for (int i = rows.begin + team.index; i < rows.end; i += team.size) to[i] = adds ? to[i] + from[i] : from[i];
  }
};

struct WriteInput {
  Grid grid;
  Random random;
  std::int64_t first_column;
  double* x;
  int iteration, ranks;
  MPIX_DEV_METHOD void operator()(int rank) const {
    const Rows part(grid, rank, ranks);
    write_input(random, first_column + part.begin, iteration, x + part.begin, part.count());
  }
};

class HostLoop {
 public:
  HostLoop(const Grid& grid, const Csr& matrix, const Random& random, int ranks, int threads)
      : grid_(grid), matrix_(matrix), random_(random), ranks_(ranks), launcher_(ranks, threads) {
    int process = 0;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    row_ = grid.row_of(process), column_ = grid.column_of(process);
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, row_, column_, &along_row_));
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, column_, row_, &along_column_));
    const auto count = static_cast<std::size_t>(grid.block);
    input_ = launcher::allocate_pinned(count);
    partial_ = launcher::allocate_pinned(count);
  }
  ~HostLoop() {
    CHECK_MPI(MPI_Comm_free(&along_row_));
    CHECK_MPI(MPI_Comm_free(&along_column_));
  }
  HostLoop(const HostLoop&) = delete;
  HostLoop& operator=(const HostLoop&) = delete;

  /// `checked`: each iteration has an input of its own, and the results are added up.
  void run(double* x, double* y, int iterations, bool checked) {
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (checked && row_ == 0)
        launcher_.run(WriteInput{grid_, random_, std::int64_t{column_} * grid_.block, x, iteration, ranks_}, ranks_);
      if (grid_.down > 1) broadcast(x);
      const bool is_all = grid_.across == 1;
      launcher_.run(Multiply{grid_, matrix_, x, is_all ? y : partial_.get(), ranks_, is_all && checked}, ranks_);
      launcher_.synchronize();
      if (!is_all) reduce(y, checked);
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    launcher_.synchronize();
  }

 private:
  void broadcast(double* x) {
    if (row_ == 0) {
      launcher_.run(CopyVector{grid_, x, input_.get(), ranks_, false}, ranks_);
      launcher_.synchronize();
    }
    CHECK_MPI(MPI_Bcast(input_.get(), grid_.block, MPI_DOUBLE, 0, along_column_));
    if (row_ != 0) launcher_.run(CopyVector{grid_, input_.get(), x, ranks_, false}, ranks_);
  }
  void reduce(double* y, bool adds) {
    double* const sum = partial_.get();
    if (column_ != 0) {
      CHECK_MPI(MPI_Reduce(sum, nullptr, grid_.block, MPI_DOUBLE, MPI_SUM, 0, along_row_));
      return;
    }
    CHECK_MPI(MPI_Reduce(MPI_IN_PLACE, sum, grid_.block, MPI_DOUBLE, MPI_SUM, 0, along_row_));
    launcher_.run(CopyVector{grid_, sum, y, ranks_, adds}, ranks_);
    launcher_.synchronize();
  }

  const Grid grid_;
  const Csr matrix_;
  const Random random_;
  const int ranks_;
  launcher::Launcher launcher_;
  int row_ = 0, column_ = 0;  ///< of this process, in the grid
  MPI_Comm along_row_ = MPI_COMM_NULL, along_column_ = MPI_COMM_NULL;
  launcher::Pinned input_, partial_;
};

}  // namespace sparse
