// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/awake_clock.h"

namespace mpix {

class Service;
enum class Looks { at_once, may_wait };

/// Something that has to be looked at now and then by a thread that nobody waits in: a network that moves only while it
/// is called, posts that have waited long enough, a relay, streams that cannot tell that they wait.
///
/// | state    | begins with                                | the service                                       |
/// |----------|--------------------------------------------|---------------------------------------------------|
/// | listed   | begin_service                              | looks when the time has come, or after wake       |
/// | looked at | its look() begins                         | holds no lock of its own; end_service waits       |
/// | failed   | look() throws                              | calls failed(), and looks no more                 |
/// | gone     | end_service; it may be called from look()  | never touches it again                            |
class Poller {
 public:
  using Clock = AwakeClock;
  /// Until the next look: none, unless the poller is woken.
  static constexpr Clock::duration when_woken = Clock::duration::max();

  Poller() = default;
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  virtual ~Poller() = default;

  /// Returns how long until the next look; nothing, for at once, is a poller that is busy.
  virtual Clock::duration look(Clock::time_point now) = 0;
  /// A look threw, and there will be no other. `why` is short-lived.
  virtual void failed(const char* why) noexcept = 0;

 private:
  friend class Service;
  friend void begin_service(Poller&, Clock::duration, Looks);
  friend void end_service(Poller&) noexcept;
  friend void wake_service(Poller&) noexcept;
  std::atomic<bool> woken_{false};
  Service* by_ = nullptr;  ///< null: it has not begun
};

/// The one thread of the library beside those of host streams. It starts with the first poller, which a program without
/// stream calls does not have, and then sleeps whenever no look is due. It ends when the process does: not in a child
/// of fork(), which has no such thread, and whose pollers nobody looks at.
///
/// Streams and kernels wait for it, so no look may wait for them. Those that copy on a GPU may: CUDA lets all copies
/// that are started meanwhile wait where the program frees memory, or launches a kernel for the first time (and so has
/// it loaded), while one of its streams waits. They have a second thread, which starts with the first of them; no
/// stream waits for it, but those of copied collectives (MPIX_COLL=copies).
///
/// begin: throws Error where there can be no thread. Both may be called under locks that looks take, but for
/// end_service while the poller's own look may wait for one of them.
void begin_service(Poller& poller, Poller::Clock::duration until_first_look = {}, Looks looks = Looks::at_once);
void end_service(Poller& poller) noexcept;
/// There is something to do soon. Costs a store and a load while the service is awake.
void wake_service(Poller& poller) noexcept;
/// Returns when all pollers have been looked at once more, or after a second: what they have to tell is told.
void let_service_look() noexcept;
/// The service ends in a handler of exit(), and the program's own handlers may come behind: a thread that waits there
/// for what the service would do looks in its place. Nothing before.
void stand_in_for_service() noexcept;
/// Which round of looks this is; for what is to be done once for several pollers.
std::uint64_t service_round() noexcept;

/// The naps of a poller that has to look all the time while something moves: it gives its core away after each look,
/// and naps longer and longer when nothing does.
class BackOff {
 public:
  /// `data_move`: something large is under way, which takes the network many looks. A nap after each would take longer
  /// than the data, so there is none until nothing has been seen to move for long.
  Poller::Clock::duration next(bool moved, bool data_move, Poller::Clock::time_point now);

 private:
  bool data_moved_ = false;
  Poller::Clock::time_point quiet_since_{};
};

}  // namespace mpix
