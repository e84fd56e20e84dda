// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "device/collective_launch.h"
#include "device/device.h"
#include "device/host/bell.h"

namespace mpix {

/// A stream without a GPU: a worker thread and the queue of what it shall run, in order.
/// Enqueueing never waits; the queue grows as needed.
class HostStream {
 public:
  explicit HostStream(Polling polling);
  ~HostStream();  ///< runs what is enqueued, then ends the thread
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  void launch(void (*function)(void*), void* argument);
  void launch(Launch&& launch);
  void launch(MemoryOps ops);
  void launch(CollectiveLaunch&& launch);
  void launch(RailLaunch&& launch);

  /// Wait, asleep, for everything enqueued so far. False when a wait in it was released. `meanwhile`, where there is
  /// one, is called now and then.
  bool synchronize(const std::function<void()>& meanwhile = nullptr);
  void note_release() { released_ = true; }
  bool is_own_thread() const { return std::this_thread::get_id() == worker_.get_id(); }

 private:
  struct Task {
    void (*function)(void*) = nullptr;
    void* argument = nullptr;
    std::unique_ptr<MemoryOps> memory;
    std::unique_ptr<CollectiveLaunch> collective;
    std::unique_ptr<RailLaunch> rail;
    Launch launch;  ///< when all are null
  };

  static constexpr std::uint64_t no_target = UINT64_MAX;

  template <class Fill>
  void enqueue(Fill fill);
  void work();
  bool take(std::vector<Task>& batch);
  void run(Task& task);
  void finished();

  const Polling polling_;
  std::mutex mutex_;
  std::condition_variable more_;      ///< for the worker: incoming_ or stop_
  std::condition_variable progress_;  ///< for synchronize()
  std::vector<Task> incoming_;
  bool worker_sleeps_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> enqueued_{0};
  std::atomic<std::uint64_t> done_{0};
  std::multiset<std::uint64_t> awaited_;                ///< values of done_ that synchronize() waits for
  std::atomic<std::uint64_t> next_awaited_{no_target};  ///< the least of them
  std::atomic<bool> released_{false};
  std::thread worker_;
};

// The streams of this process, as handles that a user passes. A null handle is the default stream, created
// when first used. Each throws Error(Fault::argument) for what is not a live stream.

HostStream* create_host_stream();
/// Runs what is enqueued first. False: a wait in it was released by its time-out.
bool destroy_host_stream(Stream stream, const std::function<void()>& meanwhile = nullptr);
void check_host_stream(Stream stream);
bool is_host_stream(Stream stream);  ///< never throws; not for the null stream
void host_stream_launch(Stream stream, void (*function)(void*), void* argument);
void host_stream_launch(Stream stream, Launch&& launch);
void host_stream_launch(Stream stream, MemoryOps ops);
void host_stream_launch(Stream stream, CollectiveLaunch&& launch);
void host_stream_launch(Stream stream, RailLaunch&& launch);
/// False: a wait was released. `meanwhile`: as HostStream's.
bool host_stream_synchronize(Stream stream, const std::function<void()>& meanwhile = nullptr);
/// By a function that runs on a stream: what follows it there has stale data.
void host_stream_note_release();

/// How host streams wait. Streams created from here on use it.
void set_host_polling(Polling polling);

}  // namespace mpix
