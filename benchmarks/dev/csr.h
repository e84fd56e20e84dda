// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/domain.h"
#include "team.h"

/// A sparse matrix of random numbers on a grid of processes, its rows compressed, and its product with a vector.
///
/// Each process has a square block of it: as many rows and columns as all others. Entries of matrix and vector are odd
/// multiples of 1/256 between -1/2 and 1/2. So all products and sums are exact, in whatever order they are added, with
/// fused multiply-add or without.
namespace sparse {

/// Processes are numbered along the rows of the grid.
struct Grid {
  int down, across;
  int block;  ///< rows, and columns, of a process
  MPIX_FN int row_of(int process) const { return process / across; }
  MPIX_FN int column_of(int process) const { return process % across; }
  MPIX_FN int at(int row, int column) const { return row * across + column; }
};

struct Random {
  std::uint64_t seed;
  MPIX_FN std::uint64_t operator()(std::int64_t i, std::int64_t j) const {
    std::uint64_t mixed = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(i) * 0xd1342543de82ef95u +
                          static_cast<std::uint64_t>(j) * 0xaf251af3b0f025b5u;
    mixed = (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 29) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 32;
  }
};
MPIX_FN double odd_fraction(std::uint64_t random) {
  return (static_cast<double>(random % 128) * 2 - 127) * (1.0 / 256);
}
/// Of the vector, which may be another in each iteration.
MPIX_FN double input_at(const Random& random, std::int64_t column, int iteration) {
  return odd_fraction(random(-1 - iteration, column));
}

/// A block in memory of the host.
struct Block {
  std::vector<std::int64_t> begin;  ///< of each row, in what follows; and the end of the last
  std::vector<std::int32_t> columns;
  std::vector<double> values;
};
/// Each element is there with the probability `fill`.
inline Block random_block(const Grid& grid, int row, int column, double fill, const Random& random) {
  const auto threshold = static_cast<std::uint64_t>(fill * 4294967296.0);
  Block block;
  block.begin.push_back(0);
  for (int i = 0; i < grid.block; ++i) {
    for (int j = 0; j < grid.block; ++j) {
      const std::uint64_t drawn = random(std::int64_t{row} * grid.block + i, std::int64_t{column} * grid.block + j);
      if (drawn >> 32 >= threshold) continue;
      block.columns.push_back(j);
      block.values.push_back(odd_fraction(drawn));
    }
    block.begin.push_back(static_cast<std::int64_t>(block.values.size()));
  }
  return block;
}

/// A block in memory of the device.
struct Csr {
  const std::int64_t* begin;
  const std::int32_t* columns;
  const double* values;
};

/// Of a block; those of one of the ranks of a process.
struct Rows {
  int begin, end;
  MPIX_FN Rows(const Grid& grid, int rank, int ranks)
      : begin(static_cast<int>(static_cast<std::int64_t>(grid.block) * rank / ranks)),
        end(static_cast<int>(static_cast<std::int64_t>(grid.block) * (rank + 1) / ranks)) {}
  MPIX_FN int count() const { return end - begin; }
};

/// Threads that share a row: few, as rows are short, so that a rank has most of its rows in work at once. And entries
/// that a thread reads before it needs one of them, as it waits for memory most of the time: with 0.3 % of some ten
/// thousand elements these are nearly always all it has of a row.
constexpr int lanes_of_row = support::ranks_are_blocks ? 8 : 1;
constexpr int entries_at_once = support::ranks_are_blocks ? 6 : 1;

/// Over the threads of a row, by whole warps.
MPIX_DEV_FN double sum_of_lanes(double value) {
  for (int step = lanes_of_row / 2; step > 0; step /= 2) {
#if defined(__HIP_DEVICE_COMPILE__)
    value += __shfl_xor(value, step);
#elif defined(__CUDA_ARCH__)
    value += __shfl_xor_sync(~0u, value, step);
#endif
  }
  return value;
}

/// Of a row with so many entries, what the thread with this number has of it.
MPIX_DEV_FN double part_of_row(const double* values, const std::int32_t* columns, int count, int lane,
                               const double* x) {
  double sum = 0;
  for (int first = lane; first < count; first += entries_at_once * lanes_of_row) {
    double found[entries_at_once], factor[entries_at_once];
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
    for (int k = 0; k < entries_at_once; ++k) {
      const int at = first + k * lanes_of_row;
      factor[k] = at < count ? values[at] : 0;
      found[k] = at < count ? x[columns[at]] : 0;
    }
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
    for (int k = 0; k < entries_at_once; ++k) sum += factor[k] * found[k];
  }
  return sum;
}

/// The product of these rows, which goes into `to`, or is added to what lies there. By all threads of a rank, whole
/// warps. Out of line: all kernels have the same code.
MPIX_DEV_CALL void multiply(Csr matrix, Rows rows, const double* x, double* to, bool adds) {
  const team::Team team = team::here();
  const int lane = team.index % lanes_of_row, at_once = team.size / lanes_of_row;
  for (int first = rows.begin; first < rows.end; first += at_once) {
    const int row = first + team.index / lanes_of_row;
    const std::int64_t begin = row < rows.end ? matrix.begin[row] : 0;
    const int count = row < rows.end ? static_cast<int>(matrix.begin[row + 1] - begin) : 0;
    const double sum = sum_of_lanes(part_of_row(matrix.values + begin, matrix.columns + begin, count, lane, x));
    if (lane != 0 || row >= rows.end) continue;
    double* const result = to + (row - rows.begin);
    *result = adds ? *result + sum : sum;
  }
}

/// The vector of an iteration, from the first column on. By all threads of a rank.
MPIX_DEV_FN void write_input(const Random& random, std::int64_t first_column, int iteration, double* x, int count) {
  const team::Team team = team::here();
  for (int j = team.index; j < count; j += team.size) x[j] = input_at(random, first_column + j, iteration);
}

/// The sum of the products of all iterations, of one row of the grid, by one thread, one entry after the other.
inline std::vector<double> serial(const Grid& grid, int row, double fill, const Random& random, int iterations) {
  std::vector<double> y(static_cast<std::size_t>(grid.block)), x(y.size());
  for (int column = 0; column < grid.across; ++column) {
    const Block block = random_block(grid, row, column, fill, random);
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (std::size_t j = 0; j < x.size(); ++j)
        x[j] = input_at(random, std::int64_t{column} * grid.block + static_cast<std::int64_t>(j), iteration);
      for (std::size_t i = 0; i < y.size(); ++i)
        for (auto k = static_cast<std::size_t>(block.begin[i]); k < static_cast<std::size_t>(block.begin[i + 1]); ++k)
          y[i] += block.values[k] * x[static_cast<std::size_t>(block.columns[k])];
    }
  }
  return y;
}

}  // namespace sparse
