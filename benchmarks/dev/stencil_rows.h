// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "diffusion.h"
#include "stencil_options.h"
#include "support/abort.h"
#include "support/domain.h"

/// The rows of the table: ways to compute the diffusion, how they are checked and timed.
namespace diffusion {

struct Row {
  const char* name;
  std::function<void(int)> run;  ///< so many iterations, on fields that lie ready
  bool is_right;                 ///< computes what the serial computation does
  std::vector<double> times = {};

  double median() const { return times[times.size() / 2]; }
};

/// Every variant starts from these.
inline void fill(const Grid& grid, const Fields& fields) {
  const std::vector<double> values = start_of(grid, process() * grid.rows);
  for (double* field : {fields.in.data, fields.out.data})
    support::from_host(field, values.data(), values.size() * sizeof(double));
  support::synchronize();  // not all streams wait for such copies
}

/// Of all processes: whether the field is what the serial computation finds. Says what is wrong.
inline bool compare(const Grid& grid, const double* field, int iterations, const char* name) {
  std::vector<double> found(grid.points());
  support::to_host(found.data(), field, found.size() * sizeof(double));
  const Grid all{grid.columns, grid.rows * processes(), grid.levels};
  const std::vector<double> expected = serial(all, iterations);
  int wrong = 0, all_wrong = 0;
  for (int level = 0; level < grid.levels; ++level)
    for (int row = 1; row <= grid.rows; ++row)
      if (std::memcmp(&found[grid.at(level, row)], &expected[all.at(level, process() * grid.rows + row)],
                      grid.row_bytes()) != 0 &&
          wrong++ == 0)
        std::printf("%s: process %d: level %d, row %d of %d is wrong\n", name, process(), level, row - 1, grid.rows);
  CHECK_MPI(MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  if (process() == 0) std::printf("%s: %d rows are wrong after %d iterations\n", name, all_wrong, iterations);
  return all_wrong == 0;
}

/// Fields begin anew with each row.
inline bool check(const std::vector<Row>& rows, const Grid& grid, const Fields& fields, int iterations) {
  bool right = true;
  for (const Row& row : rows) {
    if (!row.is_right) continue;
    fill(grid, fields);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    row.run(iterations);
    right = compare(grid, iterations % 2 == 0 ? fields.in.data : fields.out.data, iterations, row.name) && right;
  }
  return right;
}

inline double seconds(const Row& row, int iterations) {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const auto begin = std::chrono::steady_clock::now();
  row.run(iterations);
  double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), all = 0;
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return all;
}

/// Of an iteration, in microseconds. All rows once a round, so that a disturbance hits all alike.
inline void measure(std::vector<Row>& rows, const Options& options) {
  for (int round = 0; round <= options.rounds; ++round)
    for (Row& row : rows) {
      const double empty = seconds(row, 0);
      const double time = (seconds(row, options.iterations) - empty) / options.iterations * 1e6;
      if (round > 0) row.times.push_back(time);  // the first is for warming up
    }
  for (Row& row : rows) std::sort(row.times.begin(), row.times.end());
}

/// In GB/s: a phase reads or writes each of its fields once, which makes nine for an iteration.
inline double bandwidth(const Options& options, double microseconds) {
  const double points = static_cast<double>(options.columns) * options.rows * options.levels;
  return 9 * points * sizeof(double) / microseconds / 1e3;
}

/// With ratios to one of the rows.
inline void print(const std::vector<Row>& rows, const Row& basis, const Options& options, int ranks) {
  std::printf("horizontal diffusion, %d x %d x %d points of each of %d processes; ranks of %d threads\n",
              options.columns, options.rows, options.levels, processes(),
              support::ranks_are_blocks ? options.threads : 1);
  std::printf("a halo: %d rows of %d bytes, %s\n", options.levels, options.columns * 8,
              options.notify == Notify::each   ? "each notified"
              : options.notify == Notify::last ? "the last of them notified"
                                               : "by one call where there is one");
  std::printf("%-8s %8s %10s %12s %10s %10s %8s %5s %s\n", "variant", "ranks", "iterations", "us/iteration", "least",
              "most", "GB/s", "to", basis.name);
  for (const Row& row : rows)
    std::printf("%-8s %8d %10d %12.2f %10.2f %10.2f %8.1f %8.3f\n", row.name, ranks * processes(), options.iterations,
                row.median(), row.times.front(), row.times.back(), bandwidth(options, row.median()),
                row.median() / basis.median());
}

/// Checks, measures and prints. False: something was wrong.
inline bool run(std::vector<Row> rows, std::size_t basis, const Grid& grid, const Fields& fields,
                const Options& options, int ranks) {
  const bool right = !options.check || check(rows, grid, fields, options.iterations);
  fill(grid, fields);
  measure(rows, options);
  if (process() == 0) print(rows, rows[basis], options, ranks);
  return right;
}

}  // namespace diffusion
