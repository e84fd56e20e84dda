// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "watch/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace mpix {
namespace {

class Watchdog {
 public:
  void add(Watched& watched) {
    std::lock_guard<std::mutex> one(life_);
    std::lock_guard<std::mutex> hold(mutex_);
    watched_.reserve(watched_.size() + 1);
    if (!thread_.joinable()) thread_ = start_thread("the watch over streams", [this] { work(); });
    watched_.push_back(&watched);  // before the thread gets to look
    changed_.notify_all();
  }

  void remove(Watched& watched) {
    std::lock_guard<std::mutex> one(life_);
    {
      std::lock_guard<std::mutex> hold(mutex_);
      watched_.erase(std::remove(watched_.begin(), watched_.end(), &watched), watched_.end());
      if (!watched_.empty()) return;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    std::unique_lock<std::mutex> hold(mutex_);
    while (!watched_.empty()) {
      auto nap = Watched::Clock::duration::max();
      for (const Watched* watched : watched_) nap = std::min(nap, watched->interval());
      changed_.wait_for(hold, nap);
      const auto now = Watched::Clock::now();
      for (Watched* watched : watched_) watched->look(now);
    }
  }

  std::mutex life_;   ///< held by who may start or end the thread
  std::mutex mutex_;  ///< of the list; held during looks
  std::condition_variable changed_;
  std::vector<Watched*> watched_;
  std::thread thread_;
};

/// Never destroyed: a program may end with windows alive.
Watchdog& watchdog() {
  static Watchdog* const dog = new Watchdog;
  return *dog;
}

}  // namespace

void watch(Watched& watched) { watchdog().add(watched); }
void forget(Watched& watched) { watchdog().remove(watched); }

}  // namespace mpix
