// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <climits>
#include <cstdint>

#include "device/gpu/check.h"
#include "wire/row_copy.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// Not among what is computed: where processes use a GPU in turns, a copy needs none. A copy from the host of less
/// would be written by what runs kernels, but for one of several rows (CUDA 13.0: less than 28 KiB. 8 processes, 8
/// bytes each at once: 660 us in one row, 11 in two).
constexpr std::uint64_t least_of_one_row = 32 * 1024;

inline void copy_row(gpuStream_t stream, char* to, const char* from, std::uint64_t bytes) {
  const auto in_two = [&](std::uint64_t at, std::uint64_t half) {
    MPIX_CHECK_GPU(gpuMemcpy2DAsync(to + at, half, from + at, half, half, 2, gpuMemcpyDefault, stream));
  };
  if (bytes < 2 || bytes >= least_of_one_row) {
    MPIX_CHECK_GPU(gpuMemcpyAsync(to, from, bytes, gpuMemcpyDefault, stream));
    return;
  }
  in_two(0, bytes / 2);
  if (bytes % 2 != 0) in_two(bytes - 2, 1);
}

inline void copy_rows(gpuStream_t stream, const RowCopy& rows) {
  constexpr std::uint64_t longest_stride = INT_MAX;
  if (rows.rows == 0 || rows.bytes == 0) return;
  if (rows.rows == 1 || (rows.to_stride == rows.bytes && rows.from_stride == rows.bytes))
    return copy_row(stream, rows.to, rows.from, rows.rows * rows.bytes);
  if (rows.to_stride <= longest_stride && rows.from_stride <= longest_stride) {
    MPIX_CHECK_GPU(gpuMemcpy2DAsync(rows.to, rows.to_stride, rows.from, rows.from_stride, rows.bytes, rows.rows,
                                    gpuMemcpyDefault, stream));
    return;
  }
  for (std::uint64_t row = 0; row < rows.rows; ++row)
    copy_row(stream, rows.to + row * rows.to_stride, rows.from + row * rows.from_stride, rows.bytes);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
