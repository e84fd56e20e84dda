// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The thread that looks at what nobody waits in.
#include "base/service.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"

using namespace mpix;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using Clock = Poller::Clock;

/// Longer than any look or wake should ever take, also on a busy machine.
constexpr auto patience = seconds(60);

class Counted final : public Poller {
 public:
  using Act = std::function<Clock::duration(int)>;
  explicit Counted(Act act, Clock::duration first = {}, Looks looks = Looks::at_once) : act_(std::move(act)) {
    begin_service(*this, first, looks);
  }
  ~Counted() override { end_service(*this); }

  Clock::duration look(Clock::time_point) override {
    int count;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      count = ++looks_;
    }
    changed_.notify_all();
    return act_(count);
  }
  void failed(const char* why) noexcept override {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      why_ = why;
    }
    changed_.notify_all();
  }

  int looks() const {
    std::lock_guard<std::mutex> hold(mutex_);
    return looks_;
  }
  bool reaches(int looks) {
    std::unique_lock<std::mutex> hold(mutex_);
    return changed_.wait_for(hold, patience, [&] { return looks_ >= looks; });
  }
  std::string why_it_failed() {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait_for(hold, patience, [&] { return !why_.empty(); });
    return why_;
  }

 private:
  const Act act_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int looks_ = 0;
  std::string why_;
};

}  // namespace

TEST_CASE("a look that waits holds up no poller that is looked at once", "[service]") {
  std::atomic<bool> may_end{false};
  Counted waits(
      [&](int) -> Clock::duration {
        while (!may_end) std::this_thread::sleep_for(milliseconds(1));
        return seconds(1000);
      },
      {}, Looks::may_wait);
  REQUIRE(waits.reaches(1));
  Counted at_once([](int) -> Clock::duration { return microseconds(100); });
  CHECK(at_once.reaches(10));
  let_service_look();
  may_end = true;
  wake_service(waits);
  CHECK(waits.reaches(2));
}

TEST_CASE("a poller is looked at when it wants to be, and when it is woken", "[service]") {
  Counted often([](int) { return microseconds(100); });
  Counted asleep([](int) { return Poller::when_woken; });
  REQUIRE(asleep.reaches(1));
  REQUIRE(often.reaches(often.looks() + 20));
  CHECK(asleep.looks() == 1);
  for (int i = 2; i < 200; ++i) {
    wake_service(asleep);
    REQUIRE(asleep.reaches(i));
    REQUIRE(asleep.looks() == i);
  }
}

TEST_CASE("a poller may begin asleep", "[service]") {
  Counted poller([](int) { return Poller::when_woken; }, Poller::when_woken);
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(poller.looks() == 0);
  wake_service(poller);
  CHECK(poller.reaches(1));
}

TEST_CASE("a wake is not lost when the service is about to sleep", "[service]") {
  Counted poller([](int) { return Poller::when_woken; });
  REQUIRE(poller.reaches(1));
  std::minstd_rand random(1);
  for (int i = 2; i < 3000; ++i) {  // the service is on its way to sleep, or asleep, or has not yet looked
    if (const unsigned turns = random() % 300; i % 2)
      for (std::atomic<unsigned> turn{0}; turn < turns;) ++turn;
    wake_service(poller);
    REQUIRE(poller.reaches(i));
  }
}

TEST_CASE("all are looked at once more before a thread goes on that lets the service look", "[service]") {
  Counted asleep([](int) { return Poller::when_woken; });
  Counted slow([](int) {
    std::this_thread::sleep_for(milliseconds(1));
    return Poller::when_woken;
  });
  for (int i = 0; i < 300; ++i) {
    const int before = asleep.looks(), before_slow = slow.looks();
    const auto begin = Clock::now();
    let_service_look();
    if (Clock::now() - begin > milliseconds(900)) continue;  // a thread gives up after a second
    REQUIRE(asleep.looks() > before);
    REQUIRE(slow.looks() > before_slow);
  }
}

TEST_CASE("a poller that is busy keeps nobody else waiting", "[service]") {
  Counted busy([](int) { return Clock::duration{}; });
  Counted other([](int) { return milliseconds(1); });
  REQUIRE(other.reaches(20));
  REQUIRE(busy.looks() > 20);
}

TEST_CASE("a look that takes longer than its nap is followed by one all the same", "[service]") {
  Clock::time_point end{};
  std::atomic<bool> has_napped{true};
  Counted slow([&](int count) {
    if (count > 1 && Clock::now() - end < milliseconds(5)) has_napped = false;
    std::this_thread::sleep_for(milliseconds(10));
    end = Clock::now();
    return milliseconds(5);
  });
  REQUIRE(slow.reaches(5));
  CHECK(has_napped);
}

TEST_CASE("what a look throws ends that poller and no other", "[service]") {
  Counted well([](int) { return microseconds(100); });
  Counted ill([](int count) -> Clock::duration {
    if (count == 3) throw std::runtime_error("no more");
    return microseconds(100);
  });
  CHECK(ill.why_it_failed() == "no more");
  REQUIRE(well.reaches(well.looks() + 10));
  wake_service(ill);
  REQUIRE(well.reaches(well.looks() + 10));
  CHECK(ill.looks() == 3);
}

TEST_CASE("the end of a poller waits for its look, and for no other", "[service]") {
  std::atomic<bool> in_look{false}, let_go{false};
  auto slow = std::make_unique<Counted>([&](int) {
    in_look = true;
    while (!let_go) std::this_thread::sleep_for(milliseconds(1));
    return milliseconds(1);
  });
  auto other = std::make_unique<Counted>([](int) { return milliseconds(1); });
  while (!in_look) std::this_thread::sleep_for(milliseconds(1));
  other = nullptr;
  std::atomic<bool> has_ended{false};
  std::thread end([&] {
    slow = nullptr;
    has_ended = true;
  });
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(!has_ended);
  let_go = true;
  end.join();
  CHECK(has_ended);
}

TEST_CASE("a look may begin and end pollers, also its own", "[service]") {
  std::unique_ptr<Counted> inner;
  std::atomic<bool> has_inner{false};
  Counted outer([&](int count) {
    if (count == 1) {
      inner = std::make_unique<Counted>([](int) { return microseconds(100); });
      has_inner = true;
    }
    return microseconds(100);
  });
  REQUIRE(outer.reaches(2));
  REQUIRE(has_inner);
  REQUIRE(inner->reaches(5));

  Counted* self = nullptr;
  std::atomic<bool> known{false};
  Counted once([&](int) {
    while (!known) std::this_thread::yield();
    end_service(*self);
    return microseconds(1);
  });
  self = &once;
  known = true;
  REQUIRE(once.reaches(1));
  REQUIRE(outer.reaches(outer.looks() + 10));
  CHECK(once.looks() == 1);
}

TEST_CASE("pollers come, are woken and go from many threads", "[service]") {
  std::atomic<int> alive{0}, lost{0};  // Catch has no assertions for several threads
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&alive, &lost, seed] {
      std::minstd_rand random(seed);
      for (int round = 0; round < 1500; ++round) {
        auto guard = std::make_unique<int>(round);  // what a look after the end would read
        int* const read = guard.get();
        {
          const auto nap = microseconds(random() % 200);
          Counted poller([read, nap, &alive](int) {
            alive += *read >= 0 ? 1 : 0;
            return nap;
          });
          if (random() % 2) wake_service(poller);
          if (random() % 4 == 0) std::this_thread::sleep_for(microseconds(random() % 300));
          if (random() % 3 == 0 && !poller.reaches(1)) ++lost;
        }
        *read = -1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(alive > 0);
  CHECK(lost == 0);
}

TEST_CASE("a child of fork() ends as others do, and its parent's service goes on", "[service]") {
  Counted busy([](int) { return Clock::duration{}; });  // so that the lock is held now and then
  REQUIRE(busy.reaches(1));
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(60);
      wake_service(busy);
      end_service(busy);
      try {
        begin_service(busy);
        _exit(2);
      } catch (const std::exception&) {
#ifdef __SANITIZE_ADDRESS__
        _exit(3);  // to it, what only the parent's threads refer to is a leak
#else
        std::exit(3);  // with what runs at exit
#endif
      }
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 3);
  }
  REQUIRE(busy.reaches(busy.looks() + 10));
}

TEST_CASE("naps grow while nothing moves", "[service]") {
  BackOff back_off;
  auto now = Clock::now();
  CHECK(back_off.next(true, false, now) == Clock::duration{});
  CHECK(back_off.next(false, false, now + microseconds(100)) == Clock::duration{});
  const auto soon = back_off.next(false, false, now + microseconds(300)),
             later = back_off.next(false, false, now + milliseconds(500));
  CHECK(soon > Clock::duration{});
  CHECK(later > soon);
  CHECK(back_off.next(false, false, now + seconds(2)) > later);
  CHECK(back_off.next(true, false, now + seconds(2)) == Clock::duration{});
}

TEST_CASE("there are no naps while data move, unless nothing comes of it", "[service]") {
  BackOff back_off;
  auto now = Clock::now();
  (void)back_off.next(true, false, now);
  now += seconds(2);
  CHECK(back_off.next(false, true, now) == Clock::duration{});  // they begin to move
  CHECK(back_off.next(false, true, now + milliseconds(50)) == Clock::duration{});
  CHECK(back_off.next(false, true, now + milliseconds(150)) > Clock::duration{});
  CHECK(back_off.next(true, true, now + milliseconds(151)) == Clock::duration{});
  CHECK(back_off.next(false, true, now + milliseconds(200)) == Clock::duration{});
  CHECK(back_off.next(false, false, now + milliseconds(200)) > Clock::duration{});
}
