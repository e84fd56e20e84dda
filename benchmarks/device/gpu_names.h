// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

// One set of names for what the benchmarks use of CUDA and of HIP.
#if defined(__HIPCC__)

#include <hip/hip_runtime.h>
#define GPU_VENDOR_NAME "hip"
#define GPU_VENDOR ::bench::Vendor::hip
#define GPU_ARGUMENT
#define GPU(name) hip##name

#else

#include <cuda_runtime.h>
#define GPU_VENDOR_NAME "cuda"
#define GPU_VENDOR ::bench::Vendor::cuda
#define GPU_ARGUMENT __grid_constant__  // a kernel's argument that is read where it lies, without a copy
#define GPU(name) cuda##name

#endif

using gpuStream_t = GPU(Stream_t);

#if defined(__HIPCC__)
using gpuDeviceProperties = hipDeviceProp_t;
inline hipError_t gpu_host_alloc(void** memory, std::size_t bytes) { return hipHostMalloc(memory, bytes, 0); }
inline hipError_t gpu_host_free(void* memory) { return hipHostFree(memory); }
#else
using gpuDeviceProperties = cudaDeviceProp;
inline cudaError_t gpu_host_alloc(void** memory, std::size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }
inline cudaError_t gpu_host_free(void* memory) { return cudaFreeHost(memory); }
#endif

#include <stdexcept>
#include <string>

/// Throws what the vendor says about an error.
#define CHECK_GPU(call)                                                                                            \
  do {                                                                                                             \
    const GPU(Error_t) error_ = (call);                                                                            \
    if (error_ != GPU(Success)) throw std::runtime_error(std::string(#call) + ": " + GPU(GetErrorString)(error_)); \
  } while (0)
