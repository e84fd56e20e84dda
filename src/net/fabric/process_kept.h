// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <signal.h>

#include <array>
#include <map>
#include <string>

#include "base/signals_blocked.h"

namespace mpix {

/// For code of others that changes the process it is loaded into: what is changed within the scope of the handlers of
/// signals, of this thread's mask and of the environment is put back at its end. Meanwhile no signal that can wait is
/// delivered to this thread, nor to those that start here: a program of one thread never meets a handler that is not
/// its own.
class ProcessKept {
 public:
  ProcessKept();
  ~ProcessKept();
  ProcessKept(const ProcessKept&) = delete;
  ProcessKept& operator=(const ProcessKept&) = delete;

 private:
  struct Handler {
    bool known = false;
    struct sigaction action {};
  };
  const SignalsBlocked blocked_;          ///< ends last
  std::array<Handler, NSIG> handlers_{};  ///< by signal
  std::map<std::string, std::string> environment_;
};

}  // namespace mpix
