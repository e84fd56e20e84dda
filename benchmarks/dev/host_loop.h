// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>

#include "diffusion.h"
#include "launcher.h"
#include "support/abort.h"

/// The same diffusion as programs without ranks in kernels have it: the host launches each phase, packs the halos for
/// the processes around, and exchanges them by MPI_Isend and MPI_Irecv. On a GPU by way of pinned memory of the host,
/// which the kernels that pack and unpack reach.
namespace diffusion {

using launcher::allocate_pinned;
using launcher::Launcher;
using launcher::Pinned;

struct ComputePhase {
  Phase phase;
  Grid grid;
  Fields fields;
  int ranks;
  MPIX_DEV_METHOD void operator()(int rank) const { compute(phase, grid, Patch(grid, rank, ranks), fields); }
};

/// A row of all levels, and where it lies packed; null: none.
struct Packed {
  double *row, *buffer;
};
struct CopyRows {
  Grid grid;
  Packed down, up;
  bool pack;
  MPIX_DEV_METHOD void operator()(int level) const {
    copy(level, down);
    copy(level, up);
  }

 private:
  MPIX_DEV_METHOD void copy(int level, const Packed& packed) const {
    if (!packed.buffer) return;
    double* const row = packed.row + grid.at(level, 0);
    double* const buffer = packed.buffer + static_cast<std::size_t>(level) * static_cast<std::size_t>(grid.columns);
    const Team team = team_here();
    for (int i = team.index; i < grid.columns; i += team.size)
      if (pack)
        buffer[i] = row[i];
      else
        row[i] = buffer[i];
  }
};

class HostLoop {
 public:
  HostLoop(const Grid& grid, int ranks, int threads) : grid_(grid), ranks_(ranks), launcher_(ranks, threads) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    below_ = process > 0 ? process - 1 : MPI_PROC_NULL;
    above_ = process + 1 < processes ? process + 1 : MPI_PROC_NULL;
    halo_points_ = static_cast<std::size_t>(grid.levels) * static_cast<std::size_t>(grid.columns);
    for (Pinned& one : buffers_) one = allocate_pinned(halo_points_);
  }

  void run(Fields fields, int iterations) {
    for (int i = 0; i < iterations; ++i) {
      for (const Phase phase : {Phase::laplacian, Phase::fluxes, Phase::output}) {
        launcher_.run(ComputePhase{phase, grid_, fields, ranks_}, ranks_);
        exchange(result_of(phase, fields).data, halo_after(phase));
      }
      swap_in_and_out(fields);
    }
    launcher_.synchronize();
  }

 private:
  enum Buffer { from_below, from_above, to_below, to_above, buffers };
  struct Transfer {
    int process;  ///< MPI_PROC_NULL: none
    int row;
    Buffer buffer;
  };

  void exchange(double* field, const Halo& halo) {
    const int below_down = halo.down ? below_ : MPI_PROC_NULL, above_up = halo.up ? above_ : MPI_PROC_NULL;
    const int above_down = halo.down ? above_ : MPI_PROC_NULL, below_up = halo.up ? below_ : MPI_PROC_NULL;
    const Transfer sends[] = {{below_down, 1, to_below}, {above_up, grid_.rows, to_above}};
    const Transfer receives[] = {{below_up, 0, from_below}, {above_down, grid_.rows + 1, from_above}};
    if (!any(sends) && !any(receives)) return;
    copy_rows(field, sends, true);
    launcher_.synchronize();  // packed; and what was received before is unpacked
    const int count = static_cast<int>(halo_points_);
    MPI_Request requests[4];
    MPI_Request* request = requests;
    for (const Transfer& one : receives)
      CHECK_MPI(MPI_Irecv(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    for (const Transfer& one : sends)
      CHECK_MPI(MPI_Isend(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    CHECK_MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    copy_rows(field, receives, false);
  }
  double* memory(const Transfer& one) const { return buffers_[one.buffer].get(); }
  static bool any(const Transfer (&two)[2]) {
    return two[0].process != MPI_PROC_NULL || two[1].process != MPI_PROC_NULL;
  }
  void copy_rows(double* field, const Transfer (&two)[2], bool pack) {
    if (!any(two)) return;
    const auto packed = [&](const Transfer& one) {
      return Packed{field + grid_.at(0, one.row), one.process == MPI_PROC_NULL ? nullptr : memory(one)};
    };
    launcher_.run(CopyRows{grid_, packed(two[0]), packed(two[1]), pack}, grid_.levels);
  }

  const Grid grid_;
  const int ranks_;
  Launcher launcher_;
  int below_ = MPI_PROC_NULL, above_ = MPI_PROC_NULL;  ///< the processes with the rows before and behind
  std::size_t halo_points_ = 0;
  Pinned buffers_[buffers];
};

}  // namespace diffusion
