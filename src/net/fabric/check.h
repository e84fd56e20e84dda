// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <rdma/fi_errno.h>

#include <string>

#include "base/error.h"
#include "net/fabric/fabric_library.h"

namespace mpix {

[[noreturn]] inline void fail_fabric(const char* expression, const char* file, int line, long result) {
  throw Error(Fault::other, std::string("libfabric: ") + expression + " at " + file + ":" + std::to_string(line) +
                                ": " + fabric_library().strerror(static_cast<int>(-result)) + " (" +
                                std::to_string(result) + ")");
}

}  // namespace mpix

/// A libfabric call that must succeed. Its negative results are errors.
#define MPIX_CHECK_FABRIC(call)                                                       \
  do {                                                                                \
    const long mpix_result = static_cast<long>(call);                                 \
    if (mpix_result < 0) ::mpix::fail_fabric(#call, __FILE__, __LINE__, mpix_result); \
  } while (false)
