// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <hip/hip_runtime.h>

/// HIP's names for what gpu/vendor uses, and the few calls that the vendors do not share.
/// The counterpart is gpu/cuda/names.h.

#define GPU_NAME "hip"
#define GPU_NAMESPACE hip

#define GPU_GRID_CONSTANT

using gpuError_t = hipError_t;
using gpuStream_t = hipStream_t;
using gpuIpcMemHandle_t = hipIpcMemHandle_t;
using gpuPointerAttributes = hipPointerAttribute_t;
using gpuStreamCaptureMode = hipStreamCaptureMode;
using gpuGraph_t = hipGraph_t;
using gpuGraphNode_t = hipGraphNode_t;
using gpuGraphExec_t = hipGraphExec_t;
using gpuKernelNodeParams = hipKernelNodeParams;

#define gpuSuccess hipSuccess
#define gpuGetErrorName hipGetErrorName
#define gpuGetErrorString hipGetErrorString
#define gpuGetLastError hipGetLastError
#define gpuGetDeviceCount hipGetDeviceCount
#define gpuGetDevice hipGetDevice
#define gpuSetDevice hipSetDevice
#define gpuMalloc hipMalloc
#define gpuFree hipFree
#define gpuMemsetAsync hipMemsetAsync
#define gpuMemcpyAsync hipMemcpyAsync
#define gpuMemcpyDefault hipMemcpyDefault
#define gpuMemcpyHostToDevice hipMemcpyHostToDevice
#define gpuMemcpyDeviceToHost hipMemcpyDeviceToHost
#define gpuHostFree hipHostFree
#define gpuIpcGetMemHandle hipIpcGetMemHandle
#define gpuIpcOpenMemHandle hipIpcOpenMemHandle
#define gpuIpcCloseMemHandle hipIpcCloseMemHandle
#define gpuIpcMemLazyEnablePeerAccess hipIpcMemLazyEnablePeerAccess
#define gpuPointerGetAttributes hipPointerGetAttributes
#define gpuStreamCreateWithFlags hipStreamCreateWithFlags
#define gpuStreamDestroy hipStreamDestroy
#define gpuStreamNonBlocking hipStreamNonBlocking
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamCaptureModeRelaxed hipStreamCaptureModeRelaxed
#define gpuThreadExchangeStreamCaptureMode hipThreadExchangeStreamCaptureMode
#define gpuGraphCreate hipGraphCreate
#define gpuGraphDestroy hipGraphDestroy
#define gpuGraphAddKernelNode hipGraphAddKernelNode
#define gpuGraphExecDestroy hipGraphExecDestroy
#define gpuGraphLaunch hipGraphLaunch

namespace mpix {
inline namespace GPU_NAMESPACE {

inline gpuError_t gpu_instantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
  return hipGraphInstantiate(executable, graph, nullptr, nullptr, 0);
}

inline bool gpu_is_capturing(gpuStream_t stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  return hipStreamIsCapturing(stream, &status) == hipSuccess && status == hipStreamCaptureStatusActive;
}

inline gpuError_t gpu_host_alloc(void** p, std::size_t bytes) {
  return hipHostMalloc(p, bytes, hipHostMallocMapped | hipHostMallocPortable);
}

// ROCm 6 renamed the field; both have the same values in it.
#if HIP_VERSION_MAJOR >= 6
inline bool is_device_memory(const gpuPointerAttributes& attributes) { return attributes.type == hipMemoryTypeDevice; }
inline bool is_pinned_memory(const gpuPointerAttributes& attributes) { return attributes.type == hipMemoryTypeHost; }
#else
inline bool is_device_memory(const gpuPointerAttributes& attributes) {
  return attributes.memoryType == hipMemoryTypeDevice;
}
inline bool is_pinned_memory(const gpuPointerAttributes& attributes) {
  return attributes.memoryType == hipMemoryTypeHost;
}
#endif

inline bool gpu_address_range(const void* p, void** base, std::size_t* bytes) {
  hipDeviceptr_t start = nullptr;
  if (hipMemGetAddressRange(&start, bytes, const_cast<void*>(p)) != hipSuccess) {
    (void)hipGetLastError();
    return false;
  }
  *base = start;
  return true;
}

/// The capture that a stream is in. Which node the next one will depend on matters to dependent launches only.
struct GpuCapture {
  bool active = false;
  unsigned long long id = 0;
  gpuGraphNode_t front = nullptr;
};

inline GpuCapture gpu_capture_of(gpuStream_t stream) {
  GpuCapture capture;
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  capture.active = hipStreamGetCaptureInfo(stream, &status, &capture.id) == hipSuccess &&
                   status == hipStreamCaptureStatusActive;
  return capture;
}

/// A kernel, as it is launched.
using gpuFunction_t = const void*;

inline gpuError_t gpu_find_function(gpuFunction_t* function, const void* kernel) {
  *function = kernel;
  return hipSuccess;
}

/// Launch a kernel with its one argument. HIP has no dependent launch.
inline gpuError_t gpu_launch(gpuFunction_t function, dim3 grid, unsigned threads, void* argument, std::size_t,
                             gpuStream_t stream, bool) {
  void* arguments[] = {argument};
  return hipLaunchKernel(function, grid, dim3(threads), arguments, 0, stream);
}

constexpr bool gpu_has_dependent_launch = false;

/// A function of the device that its callers do not inline: what is seldom needed shall not take their registers.
#define GPU_OUT_OF_LINE static __device__ __noinline__

__device__ inline void gpu_wait_for_front() {}
__device__ inline void gpu_let_next_start() {}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
