// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "base/service.h"
#include "device/device.h"
#include "wire/collective.h"

namespace mpix {

/// The guards of a communicator's calls, in front of the kernels that receive: wire/collective_guarded.h. It looks for
/// streams that wait there, as they cannot tell, and writes the notes that kernels would; on a broken communicator it
/// lets them pass.
class CallGuards final : public Poller {
 public:
  CallGuards(Device& device, const Collective& any);
  ~CallGuards() override { close(); }

  void before_receives(Stream stream);
  /// The last look; the device may end.
  void close() noexcept;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  void note_waits();

  Device& device_;
  const Collective any_;
  bool begun_ = false;
  std::uint32_t beat_ = 0;
};

}  // namespace mpix
