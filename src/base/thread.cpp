// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/thread.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace mpix {
namespace {

/// As the system has it since Linux 3.14; not in all headers.
struct SchedulingAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;
};

/// A thread that wakes gets a core before one that runs has used up its time slice, where its own is shorter (Linux
/// 6.12). Of another policy, or of an older system, it is what it was.
void ask_for_short_slices() {
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != 0) return;
  attributes.size = sizeof attributes;
  attributes.runtime = 100'000;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void wake_soon() noexcept {
  const int before = errno;
  prctl(PR_SET_TIMERSLACK, 1000);
  ask_for_short_slices();
  errno = before;
}

}  // namespace mpix
