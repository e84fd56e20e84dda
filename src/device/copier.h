// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpix {

/// Copies for the service, one behind the other, between memory of the host and memory of the device: by what no kernel
/// that waits holds up. One thread at a time.
class Copier {
 public:
  virtual ~Copier() = default;
  /// Returns its number: one more than the one before.
  virtual std::uint64_t start(void* to, const void* from, std::size_t bytes) = 0;
  /// It is told when what was started so far is over; else later copies may have to be, too.
  virtual void mark() {}
  /// The number of the last copy that is over, with all before it.
  virtual std::uint64_t finished() = 0;
};

}  // namespace mpix
