// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <chrono>

#include "wire/program.h"

namespace mpix {

/// Tell the rank of `bell` that one of its words has changed: cheap unless one of its threads sleeps.
///
/// No wake-up is lost: the caller stores the word, fences, looks for sleepers; a sleeper makes itself known,
/// fences, looks at its words once more, and sleeps only if `rings` is still what it was before that look.
/// Either the caller sees the sleeper and rings, or the sleeper sees the word.
void ring(Bell* bell);

/// How a host stream waits before it sleeps. Measured with 8 and 27 ranks on 2 cores: yielding for 50 µs takes
/// 0.6 and 0.2 of the time of sleeping at once, for most of what a rank waits for comes within that time. Between
/// nodes it takes longer: with 4 and 8 ranks there, a millisecond takes 0.8 to 0.9 of the time of 50 and of 300 µs.
struct Polling {
  std::chrono::nanoseconds limit;
  bool own_core;  ///< poll without a pause; else yield the core after each look: the peer may need it
  std::chrono::nanoseconds network_limit;  ///< the same for what comes from another node, which rings no bell
};

/// A way to wait for shared words to change. One for each wait of a host stream:
///
///     Patience patience(bell, polling);
///     while (!looked_and_found()) patience.pause();
///
/// Polls, then sleeps on the bell. A call of pause() returns within a second.
///
/// A thread that waits for what comes from another node then naps, for an eighth of the time that it has waited so far,
/// 0.1 ms at most, and 1 ms after ten seconds: a look takes 15 µs, so that it would else have a seventh of a core for
/// ever. It is woken by what rings, and sees the rest at most that much late. And it never polls without giving the
/// core away, for a network in software needs one to bring what is waited for. Naps are for any thread that waits for
/// what rings, and has to look now and then at what does not: `longest_nap`.
class Patience {
 public:
  static constexpr std::chrono::nanoseconds longest_sleep = std::chrono::milliseconds(100),
                                            longest_remote_nap = std::chrono::microseconds(100);
  /// A network in software may need the looks for one transfer that takes seconds.
  static std::chrono::nanoseconds nap_after(std::chrono::nanoseconds waited, std::chrono::nanoseconds longest_nap);

  Patience(Bell* bell, Polling polling, bool remote = false)
      : Patience(bell, polling, remote, remote ? longest_remote_nap : longest_sleep) {}
  Patience(Bell* bell, Polling polling, bool remote, std::chrono::nanoseconds longest_nap)
      : bell_(bell), polling_(polling), remote_(remote), longest_nap_(longest_nap) {}
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// Call after a look that found nothing.
  void pause();
  /// Call after a look that found something: begin with polling again.
  void refresh();
  /// The last pause() was a sleep.
  bool slept() const { return slept_; }
  /// The next pause() will be one.
  bool is_about_to_sleep() const { return about_to_sleep_; }
  /// How long since the last refresh.
  std::chrono::nanoseconds waited() const;

 private:
  using Clock = std::chrono::steady_clock;
  void stand_up();

  Bell* bell_;
  const Polling polling_;
  const bool remote_;
  const std::chrono::nanoseconds longest_nap_;
  unsigned looks_ = 0;
  Clock::time_point since_{};  ///< of the first look in vain; zero before
  Clock::time_point left_{};   ///< the last nap; zero before
  bool about_to_sleep_ = false;
  bool slept_ = false;
  std::uint32_t rings_seen_ = 0;
};

/// Tell the processor that this is a polling loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace mpix
