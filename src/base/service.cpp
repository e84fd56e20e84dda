// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/service.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace mpix {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

using Clock = Poller::Clock;
using Running = std::chrono::steady_clock::time_point;
using Lock = std::unique_lock<std::mutex>;

/// A round of looks takes no longer, as none waits, and no sleep takes so much longer than was meant: but where the
/// process is stopped.
constexpr auto longest_round = milliseconds(200);

/// At exit a look may wait for what the exiting thread holds.
constexpr auto longest_goodbye = milliseconds(1000);

}  // namespace

std::atomic<AwakeClock::rep> AwakeClock::stopped_{0};

class Service {
 public:
  /// Never destroyed: a program may end with windows alive.
  static Service& of_process(Looks looks = Looks::at_once) {
    static Service* const at_once = new Service("the service", Looks::at_once);
    static Service* const may_wait = new Service("looks that may wait", Looks::may_wait);
    return looks == Looks::at_once ? *at_once : *may_wait;
  }

  void begin(Poller& poller, Clock::duration until_first_look) {
    if (is_child_) throw Error(Fault::unsupported, "a child of fork() cannot use the streams of its parent");
    Lock hold(mutex_);
    entries_.reserve(entries_.size() + 1);
    if (!thread_.joinable()) start();
    poller.by_ = this;
    entries_.push_back({&poller, ++last_id_, next_look(until_first_look, {})});
    due_.notify_one();
  }

  void end(Poller& poller) noexcept {
    if (is_child_) return;
    Lock hold(mutex_);
    entries_.erase(
        std::remove_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.poller == &poller; }),
        entries_.end());
    const std::thread::id here = std::this_thread::get_id();
    if (here != thread_.get_id() && here != stands_in_) looked_.wait(hold, [&] { return under_way_ != &poller; });
  }

  /// Either the service sees `woken_` when it looks a last time before it sleeps, or this sees that it is about to:
  /// each stores before it loads, in one order for all.
  void wake(Poller& poller) noexcept {
    poller.woken_.store(true);
    if (!sleeps_.load() || is_child_) return;
    Lock hold(mutex_);
    due_.notify_one();
  }

  void stand_in() noexcept {
    if (is_child_) return;
    Lock hold(mutex_);
    if (!has_ended_ || under_way_) return;
    stands_in_ = std::this_thread::get_id();
    round_.fetch_add(1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < entries_.size(); ++i) look(hold, entries_[i], Clock::now());
    stands_in_ = {};
  }

  /// A round that begins from now on looks at all; when the one behind it begins, it is over.
  void let_look() noexcept {
    if (is_child_) return;
    Lock hold(mutex_);
    if (!thread_.joinable() || std::this_thread::get_id() == thread_.get_id()) return;
    for (const Entry& entry : entries_) entry.poller->woken_.store(true);
    due_.notify_one();
    const std::uint64_t over = round() + 2;
    ++let_look_;
    (void)looked_.wait_for(hold, longest_goodbye, [&] { return has_ended_ || entries_.empty() || round() >= over; });
    --let_look_;
  }

  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    Poller* poller;
    std::uint64_t id;  ///< an address may be used again
    Clock::time_point next;
  };

  Service(const char* name, Looks looks) : name_(name), looks_(looks) {}

  /// Under mutex_.
  void start() {
    thread_ = start_thread(name_, [this] { work(); });
    static std::atomic<bool> is_known{false};
    if (is_known.exchange(true)) return;
    const auto in_child = [] {
      for (const Looks looks : {Looks::at_once, Looks::may_wait}) of_process(looks).is_child_ = true;
    };
    (void)pthread_atfork(nullptr, nullptr, in_child);
    (void)std::atexit([] {
      for (const Looks looks : {Looks::may_wait, Looks::at_once}) of_process(looks).stop();
    });
  }

  void stop() {
    if (is_child_) return;
    Lock hold(mutex_);
    if (!thread_.joinable()) return;
    stop_ = true;
    due_.notify_one();
    const bool own = std::this_thread::get_id() == thread_.get_id();
    if (own || !looked_.wait_for(hold, longest_goodbye, [this] { return has_ended_; })) return thread_.detach();
    hold.unlock();
    thread_.join();
  }

  void work() noexcept {
    wake_soon();
    Lock hold(mutex_);
    while (!stop_) {
      come_back();
      const Clock::time_point now = Clock::now();
      round_.fetch_add(1, std::memory_order_relaxed);
      if (let_look_ > 0) looked_.notify_all();
      bool some_due = false;
      for (std::size_t i = 0; i < entries_.size() && !stop_; ++i) {
        Entry& entry = entries_[i];
        if (!entry.poller->woken_.exchange(false) && entry.next > now) continue;
        some_due = true;
        look(hold, entry, now);
      }
      if (some_due) {
        hold.unlock();
        sched_yield();
        hold.lock();
      } else if (!stop_) {
        sleep(hold);
      }
    }
    has_ended_ = true;
    looked_.notify_all();
  }

  void come_back() noexcept {
    const Running now = std::chrono::steady_clock::now();
    if (looks_ == Looks::at_once && now > back_by_) AwakeClock::was_stopped_for(now - back_by_);
    back_by_ = now + longest_round;
  }

  /// From the end of the look: one that takes longer than its nap is no reason to look all the time.
  static Clock::time_point next_look(Clock::duration nap, Clock::time_point begin) {
    if (nap == Poller::when_woken) return Clock::time_point::max();
    return nap <= Clock::duration{} ? begin : Clock::now() + nap;
  }

  /// `entry` may be gone or elsewhere afterwards.
  void look(Lock& hold, const Entry& entry, Clock::time_point now) {
    Poller& poller = *entry.poller;
    const std::uint64_t id = entry.id;
    under_way_ = &poller;
    hold.unlock();
    bool is_well = true;
    Clock::duration nap{};
    try {
      nap = poller.look(now);
    } catch (const std::exception& error) {
      poller.failed(error.what());
      is_well = false;
    }
    hold.lock();
    under_way_ = nullptr;
    looked_.notify_all();
    const auto same = std::find_if(entries_.begin(), entries_.end(), [id](const Entry& e) { return e.id == id; });
    if (same == entries_.end()) return;
    if (!is_well)
      entries_.erase(same);
    else
      same->next = next_look(nap, now);
  }

  void sleep(Lock& hold) {
    sleeps_.store(true);
    Clock::time_point next = Clock::time_point::max();
    for (const Entry& entry : entries_)
      next = std::min(next, entry.poller->woken_.load() ? Clock::time_point{} : entry.next);
    if (next == Clock::time_point::max()) {
      back_by_ = Running::max();
      due_.wait(hold);
    } else if (const Clock::duration nap = next - Clock::now(); nap > Clock::duration{}) {
      back_by_ += nap;
      (void)due_.wait_for(hold, nap);
    }
    sleeps_.store(false);
  }

  const char* const name_;
  const Looks looks_;
  std::mutex mutex_;                ///< of what follows; not held during looks
  std::condition_variable due_;     ///< for the service: an entry, a wake, the end
  std::condition_variable looked_;  ///< a look is over
  std::vector<Entry> entries_;
  const Poller* under_way_ = nullptr;
  std::uint64_t last_id_ = 0;
  int let_look_ = 0;  ///< threads that wait for a round
  bool stop_ = false, has_ended_ = false;
  Running back_by_ = Running::max();  ///< the service looks again, unless the process is stopped
  std::thread thread_;
  std::thread::id stands_in_;  ///< for it
  std::atomic<bool> sleeps_{false}, is_child_{false};
  std::atomic<std::uint64_t> round_{0};
};

void begin_service(Poller& poller, Poller::Clock::duration until_first_look, Looks looks) {
  Service& service = Service::of_process(looks);
  service.begin(poller, until_first_look);
}
void end_service(Poller& poller) noexcept {
  if (poller.by_) poller.by_->end(poller);
}
void wake_service(Poller& poller) noexcept {
  if (poller.by_)
    poller.by_->wake(poller);
  else
    poller.woken_.store(true);
}
void let_service_look() noexcept { Service::of_process().let_look(); }
void stand_in_for_service() noexcept { Service::of_process().stand_in(); }
std::uint64_t service_round() noexcept { return Service::of_process().round(); }

Poller::Clock::duration BackOff::next(bool moved, bool data_move, Poller::Clock::time_point now) {
  constexpr auto polls_for = microseconds(200), polls_for_data = microseconds(100'000);
  constexpr auto shortest_nap = microseconds(10), longest_nap = microseconds(100);
  constexpr auto long_quiet = milliseconds(1000);
  constexpr auto idle_nap = microseconds(1000);
  if (moved || (data_move && !data_moved_)) quiet_since_ = now;
  data_moved_ = data_move;
  const Poller::Clock::duration quiet = now - quiet_since_;
  if (quiet < (data_move ? polls_for_data : polls_for)) return {};
  return quiet < long_quiet ? std::clamp<Poller::Clock::duration>(quiet / 8, shortest_nap, longest_nap) : idle_nap;
}

}  // namespace mpix
