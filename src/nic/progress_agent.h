// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace mpix {

class TriggeredQueue;

/// A thread that makes a queue progress when nobody who waits for the network does: it naps, shortly while
/// something of this process is under way, longer and longer while nothing is. For a provider in software it stands
/// for the hardware that is missing; of a NIC it only reads the completion queue.
class ProgressAgent {
 public:
  explicit ProgressAgent(std::shared_ptr<TriggeredQueue> queue);
  ~ProgressAgent();
  ProgressAgent(const ProgressAgent&) = delete;
  ProgressAgent& operator=(const ProgressAgent&) = delete;

 private:
  void work();

  const std::shared_ptr<TriggeredQueue> queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mpix
