// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

/// CUDA's names for what gpu/vendor uses, and the few calls that the vendors do not share.
/// The counterpart is gpu/hip/names.h.

#define GPU_NAME "cuda"

/// A kernel argument whose address can be taken without a copy.
#define GPU_GRID_CONSTANT __grid_constant__

using gpuError_t = cudaError_t;
using gpuStream_t = cudaStream_t;
using gpuIpcMemHandle_t = cudaIpcMemHandle_t;
using gpuPointerAttributes = cudaPointerAttributes;
using gpuStreamCaptureMode = cudaStreamCaptureMode;

#define gpuSuccess cudaSuccess
#define gpuGetErrorName cudaGetErrorName
#define gpuGetErrorString cudaGetErrorString
#define gpuGetLastError cudaGetLastError
#define gpuGetDeviceCount cudaGetDeviceCount
#define gpuGetDevice cudaGetDevice
#define gpuSetDevice cudaSetDevice
#define gpuMalloc cudaMalloc
#define gpuFree cudaFree
#define gpuMemsetAsync cudaMemsetAsync
#define gpuMemcpyAsync cudaMemcpyAsync
#define gpuMemcpyHostToDevice cudaMemcpyHostToDevice
#define gpuMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define gpuHostFree cudaFreeHost
#define gpuIpcGetMemHandle cudaIpcGetMemHandle
#define gpuIpcOpenMemHandle cudaIpcOpenMemHandle
#define gpuIpcCloseMemHandle cudaIpcCloseMemHandle
#define gpuIpcMemLazyEnablePeerAccess cudaIpcMemLazyEnablePeerAccess
#define gpuPointerGetAttributes cudaPointerGetAttributes
#define gpuMemoryTypeDevice cudaMemoryTypeDevice
#define gpuMemoryTypeHost cudaMemoryTypeHost
#define gpuStreamCreateWithFlags cudaStreamCreateWithFlags
#define gpuStreamDestroy cudaStreamDestroy
#define gpuStreamNonBlocking cudaStreamNonBlocking
#define gpuStreamSynchronize cudaStreamSynchronize
#define gpuStreamCaptureModeRelaxed cudaStreamCaptureModeRelaxed
#define gpuThreadExchangeStreamCaptureMode cudaThreadExchangeStreamCaptureMode

namespace mpix {

inline bool gpu_is_capturing(gpuStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

inline gpuError_t gpu_host_alloc(void** p, std::size_t bytes) {
  return cudaHostAlloc(p, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
}

/// The memory that a pointer lies in: which kind, and on which device.
inline bool is_device_memory(const gpuPointerAttributes& attributes) {
  return attributes.type == cudaMemoryTypeDevice;
}
inline bool is_pinned_memory(const gpuPointerAttributes& attributes) {
  return attributes.type == cudaMemoryTypeHost;
}

/// Base and size of the allocation around p. A driver call: looked up, so that nothing needs the driver to start.
inline bool gpu_address_range(const void* p, void** base, std::size_t* bytes) {
  using Call = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  static const Call call = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
      (void)cudaGetLastError();
      entry = nullptr;
    }
    return reinterpret_cast<Call>(entry);
  }();
  CUdeviceptr start = 0;
  if (!call || call(&start, bytes, reinterpret_cast<CUdeviceptr>(p)) != CUDA_SUCCESS) return false;
  *base = reinterpret_cast<void*>(start);
  return true;
}

/// Launch a kernel that begins with gpu_wait_for_previous(): where the device can, it is set up while the kernel
/// before it in the stream still runs.
template <class Kernel, class... Arguments>
gpuError_t gpu_launch_dependent(Kernel kernel, unsigned blocks, unsigned threads, gpuStream_t stream,
                                Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

__device__ inline void gpu_wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ inline void gpu_fence_system() { __threadfence_system(); }

}  // namespace mpix
