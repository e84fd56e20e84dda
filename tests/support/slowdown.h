// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdlib>

namespace test {

/// How much slower this machine is, as whoever runs the tests says (make check TEST_TIMEOUT_SCALE=4): what a test
/// waits for at most, and what has to be longer than that, is longer by so much.
inline int time_scale() {
  static const int scale = [] {
    const char* text = std::getenv("LIBMPIX_TEST_TIMEOUT_SCALE");
    const int wanted = text ? std::atoi(text) : 1;
    return wanted > 1 ? wanted : 1;
  }();
  return scale;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// Likewise, where a sanitizer makes things slower too.
inline int slowdown() { return time_scale() * (sanitized ? 4 : 1); }

}  // namespace test
