// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

struct Kernel {
  template <class Argument>
  explicit Kernel(void (*kernel)(Argument)) : symbol(reinterpret_cast<const void*>(kernel)) {
    MPIX_CHECK_GPU(gpu_load(symbol, &may_be_dependent));
    MPIX_CHECK_GPU(gpu_find_function(&function, symbol));
  }
  const void* symbol;
  gpuFunction_t function;
  bool may_be_dependent = false;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
