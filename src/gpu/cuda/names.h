// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

/// CUDA's names for what gpu/vendor uses, and the few calls that the vendors do not share.
/// The counterpart is gpu/hip/names.h.

#define GPU_NAME "cuda"
/// Sources of gpu/vendor are compiled once for each vendor, into one library: their names must differ there.
#define GPU_NAMESPACE cuda

/// A kernel argument whose address can be taken without a copy.
#define GPU_GRID_CONSTANT __grid_constant__

using gpuError_t = cudaError_t;
using gpuStream_t = cudaStream_t;
using gpuIpcMemHandle_t = cudaIpcMemHandle_t;
using gpuPointerAttributes = cudaPointerAttributes;
using gpuStreamCaptureMode = cudaStreamCaptureMode;
using gpuGraph_t = cudaGraph_t;
using gpuGraphNode_t = cudaGraphNode_t;
using gpuGraphExec_t = cudaGraphExec_t;
using gpuKernelNodeParams = cudaKernelNodeParams;

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
#define gpuMemcpyDefault cudaMemcpyDefault
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
#define gpuGraphCreate cudaGraphCreate
#define gpuGraphDestroy cudaGraphDestroy
#define gpuGraphAddKernelNode cudaGraphAddKernelNode
#define gpuGraphExecDestroy cudaGraphExecDestroy
#define gpuGraphLaunch cudaGraphLaunch

namespace mpix {
inline namespace GPU_NAMESPACE {

inline gpuError_t gpu_instantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
  return cudaGraphInstantiate(executable, graph, 0);
}

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

/// A call of the driver, looked up, so that nothing needs the driver to start; null where it has none.
template <class Call>
Call gpu_driver_call(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    entry = nullptr;
  }
  return reinterpret_cast<Call>(entry);
}

/// Base and size of the allocation around p.
inline bool gpu_address_range(const void* p, void** base, std::size_t* bytes) {
  using Call = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  static const auto call = gpu_driver_call<Call>("cuMemGetAddressRange");
  CUdeviceptr start = 0;
  if (!call || call(&start, bytes, reinterpret_cast<CUdeviceptr>(p)) != CUDA_SUCCESS) return false;
  *base = reinterpret_cast<void*>(start);
  return true;
}

/// The capture that a stream is in, and the one node that the next one will depend on (null: several, or none).
struct GpuCapture {
  bool active = false;
  unsigned long long id = 0;
  gpuGraphNode_t front = nullptr;
};

inline GpuCapture gpu_capture_of(gpuStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GpuCapture capture;
  cudaGraph_t graph;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture.id, &graph, &nodes, &edges, &count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v3(stream, &status, &capture.id, &graph, &nodes, &edges, &count);
#endif
  capture.active = error == cudaSuccess && status == cudaStreamCaptureStatusActive;
  if (capture.active && count == 1) capture.front = nodes[0];
  return capture;
}

/// A kernel, as it is launched.
using gpuFunction_t = CUfunction;

inline gpuError_t gpu_find_function(gpuFunction_t* function, const void* kernel) {
  cudaFunction_t found = nullptr;
  const cudaError_t error = cudaGetFuncBySymbol(&found, kernel);
  *function = found;
  return error;
}

/// Launch a kernel with its one argument. Dependent: one that calls gpu_wait_for_front() may be set up, and start,
/// while the kernel in front of it in the stream still runs.
///
/// Through the driver, with the argument as it is: 1.9 µs a launch where the runtime's call takes 2.2 (measured).
inline gpuError_t gpu_launch(gpuFunction_t function, dim3 grid, unsigned threads, void* argument, std::size_t bytes,
                             gpuStream_t stream, bool dependent) {
  using Call = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);
  static const auto call = gpu_driver_call<Call>("cuLaunchKernelEx");
  if (!call) return cudaErrorNotSupported;
  CUlaunchAttribute attribute[1];
  attribute[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute[0].value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.x;
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attribute;
  config.numAttrs = dependent ? 1 : 0;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return static_cast<cudaError_t>(call(&config, function, nullptr, extra));  // the codes are the same
}

constexpr bool gpu_has_dependent_launch = true;

/// A function of the device that its callers do not inline: what is seldom needed shall not take their registers.
#define GPU_OUT_OF_LINE static __device__ __noinline__

/// Wait until the kernels in front of a dependent one have ended, and what they wrote is there.
__device__ inline void gpu_wait_for_front() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Let the kernel behind this one start, if it is a dependent one.
__device__ inline void gpu_let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
