// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>
#include <cstddef>
#include "support/abort.h"

namespace peers {

/// Memory of the GPU, zeroed.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    CHECK_CUDA(cudaMalloc(&base_, bytes));
    CHECK_CUDA(cudaMemset(base_, 0, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  ~DeviceMemory() { CHECK_CUDA(cudaFree(base_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* get() const { return static_cast<char*>(base_); }

 private:
  void* base_ = nullptr;
};

}  // namespace peers
