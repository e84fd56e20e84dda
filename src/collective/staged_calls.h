// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/service.h"
#include "collective/reports.h"
#include "device/device.h"
#include "wire/collective_staged.h"

namespace mpix {

class Bootstrap;

/// The calls of a communicator that go by way of the CPU: wire/collective_staged.h. Copies and memory operations of
/// streams, and the service, which makes this rank's part.
class StagedCalls final : public Poller {
 public:
  /// Collective. Null where the ranks of a node cannot share the memory; `why_not` says why, if it was this rank.
  static std::unique_ptr<StagedCalls> make(Bootstrap& bootstrap, Device& device, const std::vector<int>& locals,
                                           const Collective& any, std::uint64_t room, std::string& why_not);
  ~StagedCalls() override;

  void enqueue(const Collective& call, Stream stream, bool captured);
  /// All that was enqueued so far, but for graphs, has run.
  bool have_run() const;
  const StagedMemory& memory() const { return memory_; }
  std::uint64_t memory_bytes() const { return StagedMemory::bytes(1, memory_.room); }

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  StagedCalls(Device& device, const Collective& any, std::shared_ptr<char> base, std::uint64_t room);
  void note_waits(Clock::time_point now);

  Device& device_;
  const Collective any_;
  const std::shared_ptr<char> base_;
  const StagedMemory memory_;
  StagedSteps steps_;
  const bool has_own_core_;  ///< the service
  bool begun_ = false;
  std::atomic<bool> was_captured_{false};
  std::atomic<std::uint64_t> enqueued_{0}, passed_{0};  ///< pieces: not those of graphs; and those, too
  // Of the service:
  BackOff back_off_;
  Clock::time_point since_{}, noted_{};
  std::uint32_t beat_ = 0;
};

}  // namespace mpix
