// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

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

/// A thread that makes a network progress when nobody who waits for it does: it naps, shortly while something of this
/// process is under way, longer and longer while nothing is. For a provider in software, and for messages of MPI, it
/// stands for the hardware that is missing; of a NIC it only reads the completion queue.
class ProgressAgent {
 public:
  explicit ProgressAgent(std::shared_ptr<Progressing> network);
  ~ProgressAgent();
  ProgressAgent(const ProgressAgent&) = delete;
  ProgressAgent& operator=(const ProgressAgent&) = delete;

 private:
  void work();

  const std::shared_ptr<Progressing> network_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mpix
