// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "device/device.h"
#include "wire/collective.h"

namespace mpix {

/// The guards of a communicator's calls, in front of the kernels that receive: wire/collective_guarded.h.
class CallGuards {
 public:
  CallGuards(Device& device, const Collective& any);

  void before_receives(Stream stream);

  // For the service.

  /// Notes of those that a stream waits for in a guard, as kernels write them.
  void note_waits();
  /// Let pass whatever is enqueued or still comes.
  void open();

 private:
  Device& device_;
  const Collective any_;
  std::uint32_t beat_ = 0;
};

}  // namespace mpix
