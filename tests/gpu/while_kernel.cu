// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cuda_runtime.h>

#include <cstdint>

namespace test {
namespace {

__global__ void continue_kernel(cudaGraphConditionalHandle handle, const std::uint64_t* number, std::uint64_t end) {
  cudaGraphSetConditional(handle, *number < end ? 1 : 0);
}

}  // namespace

void continue_while_below(cudaStream_t stream, cudaGraphConditionalHandle handle, const std::uint64_t* number,
                          std::uint64_t end) {
  continue_kernel<<<1, 1, 0, stream>>>(handle, number, end);
}

}  // namespace test
