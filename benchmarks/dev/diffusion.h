// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/domain.h"

/// Horizontal diffusion as weather models have it (COSMO), simplified: four stencils, each of which needs the one
/// before.
///
///   laplacian  of `in`, at the four neighbours
///   flux in i  laplacian[i + 1] - laplacian[i]
///   flux in j  laplacian[j + 1] - laplacian[j]
///   out        in - (flux_i[i] - flux_i[i - 1] + flux_j[j] - flux_j[j - 1]) / 64
///
/// Each process has `rows` rows (j) of `columns` points (i) on `levels` levels, and a row more at both ends. The ends
/// of rows, and what lies around all rows, stay as they are. Factors are powers of two, so that every compiler rounds
/// the same, with fused multiply-add or without.
namespace diffusion {

struct Grid {
  int columns, rows, levels;
  MPIX_FN std::size_t level() const { return static_cast<std::size_t>(rows + 2) * static_cast<std::size_t>(columns); }
  MPIX_FN std::size_t at(int level_number, int row) const {
    return static_cast<std::size_t>(level_number) * level() +
           static_cast<std::size_t>(row) * static_cast<std::size_t>(columns);
  }
  MPIX_FN std::size_t points() const { return static_cast<std::size_t>(levels) * level(); }
  MPIX_FN std::size_t row_bytes() const { return static_cast<std::size_t>(columns) * sizeof(double); }
};

/// The rows of one of the ranks of a process: from `begin` on; row 0 is the one before the first.
struct Patch {
  int begin, end;
  MPIX_FN Patch(const Grid& grid, int rank, int ranks)
      : begin(1 + static_cast<int>(static_cast<std::int64_t>(grid.rows) * rank / ranks)),
        end(1 + static_cast<int>(static_cast<std::int64_t>(grid.rows) * (rank + 1) / ranks)) {}
  MPIX_FN int rows() const { return end - begin; }
};

struct Field {
  double* data;
  MPIX_Dev_win window;  ///< where ranks exchange it
};
struct Fields {
  Field in, out, laplacian, flux_i, flux_j;
};

MPIX_FN double laplacian_at(const double* in, int columns) {
  return in[-1] + in[1] + in[-columns] + in[columns] - 4.0 * in[0];
}
MPIX_FN double out_at(const double* in, const double* flux_i, const double* flux_j, int columns) {
  return in[0] - (flux_i[0] - flux_i[-1] + flux_j[0] - flux_j[-columns]) * (1.0 / 64);
}

struct Team {
  int index, size;
};
MPIX_DEV_FN Team team_here() {
#if MPIX_ON_DEVICE
  return Team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
#else
  return Team{0, 1};
#endif
}

/// store(at, load(at)) at the points of the patch, less those that are `ends` from the ends of a row. A thread loads
/// for several levels before it stores, as it waits for memory most of the time.
template <class Load, class Store>
MPIX_DEV_FN void for_points(const Grid& grid, const Patch& patch, int ends, Load load, Store store) {
  constexpr int at_once = support::ranks_are_blocks ? 2 : 1;
  const Team team = team_here();
  for (int level = 0; level < grid.levels; level += at_once)
    for (int row = patch.begin; row < patch.end; ++row)
      for (int i = team.index; i < grid.columns - ends; i += team.size) {
        if (i < ends) continue;
        const std::size_t at = grid.at(level, row) + static_cast<std::size_t>(i);
        decltype(load(at)) values[at_once];
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
        for (int k = 0; k < at_once; ++k)
          if (level + k < grid.levels) values[k] = load(at + static_cast<std::size_t>(k) * grid.level());
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
        for (int k = 0; k < at_once; ++k)
          if (level + k < grid.levels) store(at + static_cast<std::size_t>(k) * grid.level(), values[k]);
      }
}

enum class Phase { laplacian, fluxes, output };

/// A phase of an iteration, on the rows of a rank, by all its threads.
MPIX_DEV_FN void compute_in_line(Phase phase, const Grid& grid, const Patch& patch, const Fields& fields) {
  const int columns = grid.columns;
  const double *const in = fields.in.data, *const laplacian = fields.laplacian.data;
  double *const flux_i = fields.flux_i.data, *const flux_j = fields.flux_j.data;
  struct Fluxes {
    double i, j;
  };
  switch (phase) {
    case Phase::laplacian:
      for_points(
          grid, patch, 1, [&](std::size_t at) { return laplacian_at(in + at, columns); },
          [&](std::size_t at, double value) { fields.laplacian.data[at] = value; });
      break;
    case Phase::fluxes:
      // The last in a row has none in i; nobody reads it.
      for_points(
          grid, patch, 0,
          [&](std::size_t at) {
            const double* const here = laplacian + at;
            return Fluxes{here[1] - here[0], here[columns] - here[0]};
          },
          [&](std::size_t at, const Fluxes& value) { flux_i[at] = value.i, flux_j[at] = value.j; });
      break;
    case Phase::output:
      for_points(
          grid, patch, 1, [&](std::size_t at) { return out_at(in + at, flux_i + at, flux_j + at, columns); },
          [&](std::size_t at, double value) { fields.out.data[at] = value; });
      break;
  }
}

/// Out of line: all kernels have the same code.
MPIX_DEV_CALL void compute(Phase phase, Grid grid, Patch patch, Fields fields) {
  compute_in_line(phase, grid, patch, fields);
}

/// Which halos follow a phase: of the laplacian the row above is needed, of the flux in j the row below, of out both.
struct Halo {
  bool down, up;  ///< the first row goes to the rank before, the last row to the rank behind
};
MPIX_FN Halo halo_after(Phase phase) { return Halo{phase != Phase::fluxes, phase != Phase::laplacian}; }
MPIX_FN const Field& result_of(Phase phase, const Fields& fields) {
  return phase == Phase::laplacian ? fields.laplacian : phase == Phase::fluxes ? fields.flux_j : fields.out;
}

MPIX_FN void swap_in_and_out(Fields& fields) {
  const Field in = fields.in;
  fields.in = fields.out;
  fields.out = in;
}

/// The start; row -1 is the one before all rows.
inline double start_at(int level, int row, int column) {
  const std::uint32_t mixed = static_cast<std::uint32_t>(level) * 83492791u +
                              static_cast<std::uint32_t>(row + 1) * 19349663u +
                              static_cast<std::uint32_t>(column) * 73856093u;
  return static_cast<double>((mixed ^ mixed >> 15) % 4096) / 4096;
}
inline std::vector<double> start_of(const Grid& grid, int first_row) {
  std::vector<double> field(grid.points());
  for (int level = 0; level < grid.levels; ++level)
    for (int row = 0; row < grid.rows + 2; ++row)
      for (int i = 0; i < grid.columns; ++i)
        field[grid.at(level, row) + static_cast<std::size_t>(i)] = start_at(level, first_row + row - 1, i);
  return field;
}

/// All of it by one thread, one point after the other.
inline std::vector<double> serial(const Grid& all, int iterations) {
  std::vector<double> in = start_of(all, 0), out = in;
  std::vector<double> laplacian(all.points()), flux_i(all.points()), flux_j(all.points());
  for (int iteration = 0; iteration < iterations; ++iteration, in.swap(out))
    for (int level = 0; level < all.levels; ++level) {
      for (int row = 1; row <= all.rows; ++row)
        for (std::size_t at = all.at(level, row) + 1; at < all.at(level, row + 1) - 1; ++at)
          laplacian[at] = laplacian_at(&in[at], all.columns);
      for (int row = 1; row <= all.rows; ++row)
        for (std::size_t at = all.at(level, row); at < all.at(level, row + 1); ++at) {
          flux_i[at] = laplacian[at + 1] - laplacian[at];
          flux_j[at] = laplacian[at + static_cast<std::size_t>(all.columns)] - laplacian[at];
        }
      for (int row = 1; row <= all.rows; ++row)
        for (std::size_t at = all.at(level, row) + 1; at < all.at(level, row + 1) - 1; ++at)
          out[at] = out_at(&in[at], &flux_i[at], &flux_j[at], all.columns);
    }
  return in;
}

}  // namespace diffusion
