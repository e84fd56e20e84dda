// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/bell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace mpix {
namespace {

/// Orders a store before a later load, which release and acquire do not.
void full_fence() {
#if defined(__SANITIZE_THREAD__)
  // The fence guards against lost wake-ups, not against races; ThreadSanitizer has no model of it.
  static std::uint32_t word;
  __atomic_fetch_add(&word, 0, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// Not FUTEX_PRIVATE_FLAG: the word is shared with other processes.
void futex_wait(std::uint32_t* word, std::uint32_t value, std::chrono::nanoseconds most) {
  timespec limit{static_cast<time_t>(most.count() / 1000000000), static_cast<long>(most.count() % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake_all(std::uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

constexpr std::chrono::nanoseconds shortest_nap = std::chrono::microseconds(10);

/// A nap takes no longer than that beyond what was meant, but where the process is stopped.
constexpr auto longest_oversleep = std::chrono::milliseconds(200);

}  // namespace

void ring(Bell* bell) {
  full_fence();
  if (__atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) == 0) return;
  __atomic_fetch_add(&bell->rings, 1, __ATOMIC_RELEASE);
  futex_wake_all(&bell->rings);
}

Patience::~Patience() { stand_up(); }

void Patience::stand_up() {
  if (!about_to_sleep_) return;
  __atomic_fetch_sub(&bell_->sleepers, 1, __ATOMIC_RELAXED);
  about_to_sleep_ = false;
}

void Patience::refresh() {
  if (looks_ == 0) return;
  stand_up();
  looks_ = 0;
  since_ = left_ = Clock::time_point{};
}

std::chrono::nanoseconds Patience::waited() const {
  return since_ == Clock::time_point{} ? std::chrono::nanoseconds{0} : Clock::now() - since_;
}

std::chrono::nanoseconds Patience::nap_after(std::chrono::nanoseconds waited, std::chrono::nanoseconds longest_nap) {
  constexpr std::chrono::nanoseconds long_wait = std::chrono::seconds(10), idle_nap = std::chrono::milliseconds(1);
  if (longest_nap >= longest_sleep) return longest_nap;  // all that it waits for rings
  return waited < long_wait ? std::clamp(waited / 8, shortest_nap, longest_nap) : std::max(longest_nap, idle_nap);
}

void Patience::pause() {
  ++looks_;
  slept_ = about_to_sleep_;
  if (about_to_sleep_) {
    // The look since then found nothing, and a thread that changes a word from here on rings.
    const std::chrono::nanoseconds nap = nap_after(waited(), longest_nap_);
    const Clock::time_point begin = Clock::now();
    futex_wait(&bell_->rings, rings_seen_, nap);
    // As AwakeClock has it, but found out here: this thread may be awake before the service is. The process may have
    // been stopped in a look, too.
    const Clock::time_point end = Clock::now();
    if (end - begin > nap + longest_oversleep) since_ += end - begin - nap;
    if (left_ != Clock::time_point{} && begin - left_ > longest_oversleep) since_ += begin - left_;
    left_ = end;
    rings_seen_ = __atomic_load_n(&bell_->rings, __ATOMIC_ACQUIRE);
    full_fence();
    return;
  }
  if (since_ == Clock::time_point{}) since_ = Clock::now();
  if (polling_.own_core && !remote_ && looks_ % 64 != 0) {
    relax();
    return;
  }
  const Clock::duration limit = remote_ ? polling_.network_limit : polling_.limit;
  if (waited() < limit) {
    // With a core of its own, once in a while: the cores may have been counted wrong.
    sched_yield();
    return;
  }
  if (waited() > limit + longest_oversleep) since_ = Clock::now() - limit;  // likewise
  __atomic_fetch_add(&bell_->sleepers, 1, __ATOMIC_RELAXED);
  about_to_sleep_ = true;
  rings_seen_ = __atomic_load_n(&bell_->rings, __ATOMIC_ACQUIRE);
  full_fence();
}

}  // namespace mpix
