// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpix {

/// One MPI_Put of a stream epoch, as recorded.
struct Put {
  const void* source;
  std::size_t bytes;
  int target;
  std::int64_t displacement;  ///< in the target's displacement units
  std::uint64_t first = 0;    ///< of the bytes there, from the displacement

  /// In the target's window.
  std::uint64_t offset(std::uint64_t displacement_unit) const {
    return static_cast<std::uint64_t>(displacement) * displacement_unit + first;
  }
  bool operator==(const Put& other) const {
    return source == other.source && bytes == other.bytes && target == other.target &&
           displacement == other.displacement && first == other.first;
  }
};

}  // namespace mpix
