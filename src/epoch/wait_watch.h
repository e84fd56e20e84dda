// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <map>

#include "base/service.h"
#include "epoch/guards.h"
#include "watch/stall.h"
#include "wire/wait_note.h"

namespace mpix {

/// The hang report of one window on a device whose streams cannot tell that they wait. It looks at what kernels note
/// (wire/wait_note.h) and at the guards that streams are in, and hands what lasts too long to the window's
/// StallReporter. How long something has lasted is known to the interval between looks.
class WaitWatch final : public Poller {
 public:
  /// `guards` may be null: then only kernels wait.
  WaitWatch(const HostWords& words, std::size_t ranks, StallReporter& reporter, Guards* guards);
  ~WaitWatch() override { end_service(*this); }
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

  Clock::duration look(Clock::time_point now) override;
  void failed(const char* why) noexcept override;

 private:
  Clock::duration interval() const noexcept;
  /// One thing that may be waited for.
  struct Wait {
    bool lasts = false;
    Clock::time_point since{};
    Clock::duration reported{};

    void begin(Clock::time_point now) { *this = Wait{true, now, {}}; }
  };
  /// What a kernel may wait for, for one peer.
  struct Noted : Wait {
    std::uint64_t note = 0;
    Clock::time_point changed{};
  };
  /// What a guard may wait for.
  struct Guarded : Wait {
    std::uint64_t mark = 0, progress = 0;
  };

  void look_at_notes(Clock::time_point now);
  using AllNoted = std::map<int, Noted>;  ///< by rank; those that kernels have ever waited for
  void look_at_note(AllNoted& all, int rank, std::uint64_t note, Clock::time_point now) const;
  void follow(Noted& noted, std::uint64_t note, Clock::time_point now) const;
  void report_notes(Call call, Clock::time_point now);
  void look_at_guard(Guards::Side side, Guarded& guarded, Clock::time_point now);
  bool is_due(const Wait& wait, Clock::time_point now) const {
    return wait.lasts && now - wait.since - wait.reported >= patience_;
  }
  bool is_released() const { return __atomic_load_n(&words_.released, __ATOMIC_ACQUIRE) != 0; }

  const HostWords& words_;
  StallReporter& reporter_;
  Guards* const guards_;
  const Clock::duration patience_;
  const int ranks_;
  AllNoted sends_, receives_;
  Guarded to_targets_, to_origins_;
};

}  // namespace mpix
