// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "net/network.h"

namespace mpix {

/// Where the landing memory for an origin lies, as its target tells it: bytes that travel. `bytes` last: it is the
/// signal that tells the rest.
struct LandingPlace {
  std::uint64_t key, base;  ///< RemoteMemory
  std::uint64_t address;    ///< for kernels of the target
  std::uint64_t bytes;      ///< of the ask that it answers; or

  /// the target could not allocate them.
  static constexpr std::uint64_t refused = UINT64_MAX;
  static constexpr std::size_t told_before = 3 * sizeof(std::uint64_t);  ///< of it, by the write
};

/// At a target, for one origin: pinned memory that mirrors the origin's outgoing block (offnode/outgoing.h). The
/// origin's network writes there what kernels of the target then copy into the window. As much as the largest epoch of
/// that origin so far; never as much as the window.
///
/// One place serves all epochs: the data of an epoch wait for its post, which comes behind the wait that has copied the
/// data of the epoch before. For the same reason the memory may go when the origin asks for more: that is for an epoch
/// whose data wait for the answer, and the waits for all those before it have run.
class Landing {
 public:
  /// Have so many bytes. Throws Error, and then has what it had.
  void grow(std::size_t bytes, Device& device, Network& network);
  std::size_t bytes() const { return bytes_; }
  LandingPlace place() const;
  /// The network reaches it no more. Kernels may.
  void withdraw() { exposed_ = nullptr; }

 private:
  std::shared_ptr<char> memory_;
  std::shared_ptr<const Registration> exposed_;
  std::size_t bytes_ = 0;
};

}  // namespace mpix
