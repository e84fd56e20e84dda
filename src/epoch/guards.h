// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "epoch/plan.h"
#include "team/neighbourhood.h"
#include "watch/stall.h"

namespace mpix {

/// The guards of one window, in front of its kernels: wire/guard.h.
class Guards {
 public:
  enum class Side { targets, origins };  ///< that a guard waits for

  Guards(const Neighbourhood& peers, Device& device, const HostWords* words)
      : peers_(peers), device_(device), words_(words) {}

  /// Enqueue the guard of a call's sends, and of its receives. `then`: what the same call waits for after its sends.
  void before_send(const AccessPlan& plan, const ExposurePlan* then, Call call, Stream stream);
  void before_receive(const ExposurePlan& plan, Call call, Stream stream);
  /// Let pass whatever is enqueued or still comes. Any thread.
  void open();

  // For the service.

  /// A guard that a stream waits in.
  struct Waiting {
    std::uint64_t mark = 0;      ///< 0: none
    std::uint64_t progress = 0;  ///< with the same mark and progress it is the same guard
    Call call{};
    std::string missing;
  };
  Waiting look(Side side);

 private:
  /// What one guard waits for. A graph may have it for ever, so it is kept.
  struct Record {
    Call call;
    std::vector<int> ranks;
    std::vector<std::uint64_t> needed;
    std::vector<int> then;  ///< origins that the call waits for next
    bool operator==(const Record& other) const {
      return call == other.call && ranks == other.ranks && needed == other.needed && then == other.then;
    }
  };

  void enqueue(Side side, Record record, Stream stream);
  std::uint64_t mark_of(Record&& record);
  /// What is missing of `rank`, with an epoch of this pair that `done` went before; nothing if it is there.
  void add_missing(MissingRanks& missing, Side side, int rank, std::uint64_t needed, std::uint64_t done) const;
  std::uint64_t* awaited_word(Side side, int rank) const;
  const std::uint64_t* counter(Side side, int rank) const;

  const Neighbourhood& peers_;
  Device& device_;
  const HostWords* const words_;
  std::mutex mutex_;
  std::vector<Record> records_;  ///< a mark is a place in here, from 1
};

}  // namespace mpix
