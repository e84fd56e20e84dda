// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>

/// The vendors' names for what gpu_device.h uses.
#ifdef __HIPCC__
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#define TEST_GPU_NAME "hip"
#define GPU_CLOCK_RATE hipDeviceAttributeClockRate
inline hipError_t gpu_host_alloc(void** p, std::size_t bytes) { return hipHostMalloc(p, bytes, hipHostMallocDefault); }
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define TEST_GPU_NAME "cuda"
#define GPU_CLOCK_RATE cudaDevAttrClockRate
inline cudaError_t gpu_host_alloc(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, cudaHostAllocDefault); }
#endif
