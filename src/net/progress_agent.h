// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <memory>

#include "base/service.h"

namespace mpix {

/// What a network does only while somebody calls it.
class Progressing {
 public:
  virtual ~Progressing() = default;
  /// Returns at once where another thread is doing so. Does not throw.
  virtual void progress() = 0;
  /// How often that was done.
  virtual std::uint64_t looks() const = 0;
  /// Something was started that has not ended.
  virtual bool is_busy() const = 0;
};

/// Makes a network progress when no waiting thread does: it naps, shortly while something of this process is under way,
/// longer and longer while nothing is. For a provider in software, and for messages of MPI, it stands for the hardware
/// that is missing; of a NIC it only reads the completion queue.
class ProgressAgent final : public Poller {
 public:
  explicit ProgressAgent(std::shared_ptr<Progressing> network);
  ~ProgressAgent() override { end_service(*this); }

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  const std::shared_ptr<Progressing> network_;
  Clock::duration nap_;
  std::uint64_t seen_ = 0;
};

}  // namespace mpix
