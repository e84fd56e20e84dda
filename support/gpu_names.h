// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <string>

#include "support/platform.h"

// One set of names for what tests and benchmarks use of CUDA and of HIP.
#if defined(__HIPCC__)

#include <hip/hip_runtime.h>
#define GPU_VENDOR_NAME "hip"
#define GPU_VENDOR ::support::Vendor::hip
#define GPU_ARGUMENT
#define GPU_CLOCK_RATE hipDeviceAttributeClockRate
#define GPU(name) hip##name
using gpuDeviceProperties = hipDeviceProp_t;
inline hipError_t gpu_host_alloc(void** memory, std::size_t bytes) { return hipHostMalloc(memory, bytes, 0); }
inline hipError_t gpu_host_free(void* memory) { return hipHostFree(memory); }

#else

#include <cuda_runtime.h>
#define GPU_VENDOR_NAME "cuda"
#define GPU_VENDOR ::support::Vendor::cuda
#define GPU_ARGUMENT __grid_constant__  // a kernel's argument that is read where it lies, without a copy
#define GPU_CLOCK_RATE cudaDevAttrClockRate
#define GPU(name) cuda##name
using gpuDeviceProperties = cudaDeviceProp;
inline cudaError_t gpu_host_alloc(void** memory, std::size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }
inline cudaError_t gpu_host_free(void* memory) { return cudaFreeHost(memory); }

#endif

using gpuStream_t = GPU(Stream_t);

#define CHECK_GPU(call)                                                                                             \
  do {                                                                                                              \
    const GPU(Error_t) error_ = (call);                                                                             \
    if (error_ != GPU(Success)) ::support::platform_failure(std::string(#call ": ") + GPU(GetErrorString)(error_)); \
  } while (false)

namespace support {
namespace {

/// Makes a GPU the current one of the thread, for a while.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index) {
    CHECK_GPU(GPU(GetDevice)(&before_));
    if (before_ != index) CHECK_GPU(GPU(SetDevice)(index));
  }
  ~CurrentGpu() { (void)GPU(SetDevice)(before_); }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
};

}  // namespace
}  // namespace support
