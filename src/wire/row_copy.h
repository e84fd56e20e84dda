// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

namespace mpix {

/// Rows of so many bytes each, from one place to another. None: there is nothing to copy.
struct RowCopy {
  char* to;
  std::uint64_t to_stride;
  const char* from;
  std::uint64_t from_stride;
  std::uint64_t bytes;
  std::uint64_t rows;
};

}  // namespace mpix
