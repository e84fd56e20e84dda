// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "wire/collective.h"

namespace mpix {

/// The guards of a communicator's calls, in front of their kernels: wire/collective_guarded.h.
class CallGuards {
 public:
  CallGuards(Device& device, const Collective& any);

  void before_sends(Stream stream);
  void before_receives(const Collective& call, Stream stream);

  // For the service.

  /// Notes of those that a stream waits for in a guard, as kernels write them.
  void note_waits();
  /// Let pass whatever is enqueued or still comes.
  void open();

 private:
  /// A mark: what a guard waits for.
  enum : std::uint64_t { no_guard, sends, receives_of_all, receives_of_one };  ///< of one: and its rank

  void enqueue(std::uint64_t mark, Stream stream);
  std::uint64_t needed(std::uint64_t mark) const;
  bool waits_for(std::uint64_t mark, std::uint32_t rank) const;

  Device& device_;
  const Collective any_;
  std::uint32_t beat_ = 0;
};

}  // namespace mpix
