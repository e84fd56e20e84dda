// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/service.h"
#include "collective/reports.h"
#include "device/copier.h"
#include "device/device.h"
#include "wire/collective_copied.h"
#include "wire/collective_staged.h"

namespace mpix {

class Bootstrap;

/// Where attached memory is, as mapped here: by attachment and rank of the node; null: that rank has attached none.
using AttachedMaps = std::array<std::vector<char*>, most_attached>;

/// The calls of a communicator that the service leads, behind memory operations of streams: staged ones, of which it
/// makes this rank's part (wire/collective_staged.h), and copied ones, whose data the copy engine moves
/// (wire/collective_copied.h).
class LedCalls final : public Poller {
 public:
  /// Collective. Null where the ranks of a node cannot share the memory; `why_not` says why, if it was this rank.
  static std::unique_ptr<LedCalls> make(Bootstrap& bootstrap, Device& device, const std::vector<int>& locals,
                                        const Collective& any, std::uint64_t room, std::string& why_not);
  /// Copied calls may come. `memory`: of the library, by rank of the node. Before the first call.
  void prepare_copies(const std::vector<char*>& memory, const AttachedMaps& maps);
  ~LedCalls() override;

  void enqueue(const Collective& call, Stream stream, bool captured);
  void enqueue(const Collective& call, const CopiedCall& copied, Stream stream, bool captured);
  /// All that was enqueued so far, but for graphs, has run.
  bool have_run() const;
  const StagedMemory& memory() const { return memory_; }
  std::uint64_t memory_bytes() const { return StagedMemory::bytes(1, memory_.room); }

  /// A note has changed of a wait for that rank. It has come to one of these calls where it waits for this rank, which
  /// is in a call of another way: they have called different things. By the service.
  void noted_wait(std::uint32_t rank);
  /// See CollectiveReports::Watch.
  std::string stuck(double seconds);

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  LedCalls(Device& device, const Collective& any, std::shared_ptr<char> base, std::uint64_t room);
  void load_copies(const CopiedMoves<Copier>::Places& places, Copier& fills, Copier& takes) const;
  void begin(bool captured);
  void differ(std::uint32_t rank, std::uint64_t mine, std::uint64_t theirs);
  Clock::duration look_at_calls(Clock::time_point now);
  void note_waits(Clock::time_point now);
  void begin_moves();

  Device& device_;
  const Collective any_;
  const std::shared_ptr<char> base_;
  const StagedMemory memory_;
  StagedSteps steps_;
  const bool has_own_core_;  ///< the service
  bool begun_ = false;
  std::atomic<bool> was_captured_{false};
  std::atomic<std::uint64_t> enqueued_{0}, passed_{0};  ///< pieces: not those of graphs; and those, too
  std::mutex mutex_;
  std::deque<std::unique_ptr<const CopiedCall>> to_come_;  ///< not those of graphs
  std::atomic<Clock::rep> looks_since_{0};                 ///< 0: no look is under way
  Clock::rep told_stuck_ = 0;
  std::mutex looks_;  ///< guards what follows: of the service's looks, and of reports, which another thread may make
  std::unique_ptr<CopiedMoves<Copier>> moves_;
  BackOff back_off_;
  Clock::time_point since_{}, noted_{};
  std::uint32_t beat_ = 0;
  struct Ahead {
    std::uint64_t number = 0;
    int notes = 0;
  };
  std::vector<Ahead> ahead_;  ///< by rank
};

}  // namespace mpix
