// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals_blocked.h"

namespace mpix {

/// Whether this is one: what it has changed for itself nobody else minds.
inline bool& is_own_thread() {
  static thread_local bool is = false;
  return is;
}

/// A thread of the library, which leaves the signals to those of the program. Throws Error where there can be no more.
/// `work` lets no exception out.
template <class Work>
std::thread start_thread(const char* what, Work work) {
  const SignalsBlocked blocked;
  try {
    return std::thread([work = std::move(work)]() mutable {
      is_own_thread() = true;
      work();
    });
  } catch (const std::system_error& error) {
    throw Error(Fault::memory, std::string("no thread can be started for ") + what + ": " + error.what());
  }
}

/// For the calling thread, where others keep the cores busy: its naps are short, and it has a core soon when it wakes.
void wake_soon() noexcept;

}  // namespace mpix
