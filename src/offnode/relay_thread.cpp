// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/relay_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/thread.h"

namespace mpix {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto polls_for = microseconds(200);
constexpr auto shortest_nap = microseconds(10), longest_nap = microseconds(100);
/// When nothing has moved for long.
constexpr auto long_quiet = milliseconds(1000);
constexpr auto idle_nap = microseconds(1000);

class RelayThread;
RelayThread& relay_thread();

class RelayThread {
 public:
  void add(Relayed& relayed) {
    std::lock_guard<std::mutex> one(life_);
    change([&] { relayed_.push_back(&relayed); });
    if (thread_.joinable()) return;
    try {
      thread_ = start_thread("the relay", [this] { work(); });
    } catch (...) {
      relayed_.pop_back();  // nobody looks
      throw;
    }
  }

  void remove(Relayed& relayed) {
    end_without([&] { relayed_.erase(std::remove(relayed_.begin(), relayed_.end(), &relayed), relayed_.end()); });
  }

  void remove_all() {
    end_without([&] { relayed_.clear(); });
  }

  void wake() {
    if (!naps_.load(std::memory_order_relaxed)) return;
    woken_.store(true, std::memory_order_relaxed);
    changed_.notify_one();
  }

 private:
  template <class Change>
  void end_without(Change apply) {
    std::lock_guard<std::mutex> one(life_);
    bool last = false;
    change([&] {
      apply();
      last = relayed_.empty();
    });
    if (last && thread_.joinable()) thread_.join();
  }

  /// The thread takes its lock again at once after each round: who wants it has to be let in.
  template <class Change>
  void change(Change apply) {
    wants_in_.fetch_add(1);
    std::lock_guard<std::mutex> hold(mutex_);
    apply();
    wants_in_.fetch_sub(1);
    changed_.notify_all();
  }

  void work() {
    prctl(PR_SET_TIMERSLACK, 1000);  // naps are short
    auto quiet_since = Clock::now();
    std::unique_lock<std::mutex> hold(mutex_);
    while (!relayed_.empty()) {
      const bool moved = look();
      progress();
      if (moved || woken_.exchange(false, std::memory_order_relaxed)) quiet_since = Clock::now();
      pause(hold, Clock::now() - quiet_since);
    }
  }

  bool look() {
    bool moved = false;
    for (Relayed* relayed : relayed_)
      if (relayed->look()) moved = true;
    return moved;
  }

  void progress() {
    try {
      networks_.clear();
      for (Relayed* relayed : relayed_) {
        OperationBudget* const network = &relayed->budget();
        if (std::find(networks_.begin(), networks_.end(), network) == networks_.end()) networks_.push_back(network);
      }
      for (OperationBudget* network : networks_) network->progress();
    } catch (const std::exception& error) {
      log(LogLevel::warn, error.what());
    }
  }

  void pause(std::unique_lock<std::mutex>& hold, Clock::duration quiet) {
    if (wants_in_.load() > 0) {
      hold.unlock();
      while (wants_in_.load() > 0) sched_yield();
      hold.lock();
    } else if (quiet < polls_for) {
      sched_yield();
    } else {
      naps_.store(true, std::memory_order_relaxed);
      const Clock::duration nap =
          quiet < long_quiet ? std::clamp<Clock::duration>(quiet / 8, shortest_nap, longest_nap) : idle_nap;
      changed_.wait_for(hold, nap);
      naps_.store(false, std::memory_order_relaxed);
    }
  }

  std::mutex life_;   ///< held by who may start or end the thread
  std::mutex mutex_;  ///< of the list; held during looks
  std::condition_variable changed_;
  std::vector<Relayed*> relayed_;
  std::vector<OperationBudget*> networks_;
  std::atomic<int> wants_in_{0};
  std::atomic<bool> naps_{false}, woken_{false};
  std::thread thread_;
};

/// Never destroyed: a program may end with windows alive. But then the pinned memory goes, and nobody may look at it. A
/// child of fork() has no such thread, and the locks are as they happened to be.
RelayThread& relay_thread() {
  static const pid_t process = getpid();
  static RelayThread* const thread = [] {
    (void)std::atexit([] {
      if (getpid() == process) relay_thread().remove_all();
    });
    return new RelayThread;
  }();
  return *thread;
}

}  // namespace

void add_to_relay(Relayed& relayed) { relay_thread().add(relayed); }
void remove_from_relay(Relayed& relayed) { relay_thread().remove(relayed); }
void wake_relay() { relay_thread().wake(); }

}  // namespace mpix
