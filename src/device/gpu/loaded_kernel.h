// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>

#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

struct Kernel {
  template <class Argument>
  explicit Kernel(void (*kernel)(Argument)) : symbol(reinterpret_cast<const void*>(kernel)) {
    MPIX_CHECK_GPU(gpu_load(symbol, &may_be_dependent));
    MPIX_CHECK_GPU(gpu_find_function(&function, symbol));
  }
  /// Whether two such blocks find room on a multiprocessor.
  bool takes_a_half(unsigned threads) const {
    unsigned known = threads_of_half.load(std::memory_order_relaxed);
    if (known == 0) {
      for (known = 1024; known > 64 && gpu_blocks_at_once(symbol, known) < 2;) known -= 64;
      threads_of_half.store(known, std::memory_order_relaxed);
    }
    return threads <= known;
  }

  const void* symbol;
  gpuFunction_t function;
  bool may_be_dependent = false;

 private:
  mutable std::atomic<unsigned> threads_of_half{0};
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
