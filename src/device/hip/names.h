// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <hip/hip_runtime.h>

#include <unistd.h>

#include <cstdint>
#include <string>

#include "device/hip/hip_library.h"
#include "wire/guard.h"

/// HIP's names for what device/gpu uses, and the few calls that the vendors do not share.
/// The counterpart is device/cuda/names.h.

#define GPU_NAME "hip"
#define GPU_NAMESPACE hip
#define GPU_CALLBACK
#define GPU_QUEUES_VARIABLE "GPU_MAX_HW_QUEUES"

#define GPU_GRID_CONSTANT

using gpuError_t = hipError_t;
using gpuStream_t = hipStream_t;
using gpuIpcMemHandle_t = hipIpcMemHandle_t;
using gpuPointerAttributes = hipPointerAttribute_t;
using gpuMemcpyKind = hipMemcpyKind;
using gpuStreamCaptureMode = hipStreamCaptureMode;
using gpuGraph_t = hipGraph_t;
using gpuGraphNode_t = hipGraphNode_t;
using gpuGraphExec_t = hipGraphExec_t;
using gpuKernelNodeParams = hipKernelNodeParams;
using gpuEvent_t = hipEvent_t;

#define gpuSuccess hipSuccess
#define gpuGetErrorName hipGetErrorName
#define gpuGetErrorString hipGetErrorString
#define gpuGetLastError hipGetLastError
#define gpuGetDeviceCount hipGetDeviceCount
#define gpuGetDevice hipGetDevice
#define gpuSetDevice hipSetDevice
#define gpuMalloc hipMalloc
#define gpuMemsetAsync hipMemsetAsync
#define gpuMemcpyAsync hipMemcpyAsync
#define gpuMemcpy2DAsync hipMemcpy2DAsync
#define gpuMemcpyDefault hipMemcpyDefault
#define gpuMemcpyHostToDevice hipMemcpyHostToDevice
#define gpuMemcpyDeviceToHost hipMemcpyDeviceToHost
#define gpuHostGetDevicePointer hipHostGetDevicePointer
#define gpuHostRegister hipHostRegister
#define gpuHostRegisterMapped hipHostRegisterMapped
#define gpuHostRegisterPortable hipHostRegisterPortable
#define gpuHostUnregister hipHostUnregister
#define gpuIpcGetMemHandle hipIpcGetMemHandle
#define gpuIpcOpenMemHandle hipIpcOpenMemHandle
#define gpuIpcCloseMemHandle hipIpcCloseMemHandle
#define gpuIpcMemLazyEnablePeerAccess hipIpcMemLazyEnablePeerAccess
#define gpuPointerGetAttributes hipPointerGetAttributes
#define gpuStreamCreateWithPriority hipStreamCreateWithPriority
#define gpuDeviceGetStreamPriorityRange hipDeviceGetStreamPriorityRange
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
#define gpuErrorNotReady hipErrorNotReady
#define gpuEventCreate hipEventCreate
#define gpuEventCreateWithFlags hipEventCreateWithFlags
#define gpuEventDisableTiming hipEventDisableTiming
#define gpuEventRecord hipEventRecord
#define gpuEventQuery hipEventQuery
#define gpuEventElapsedTime hipEventElapsedTime
#define gpuEventDestroy hipEventDestroy
#define gpuDeviceEnablePeerAccess hipDeviceEnablePeerAccess
#define gpuErrorPeerAccessAlreadyEnabled hipErrorPeerAccessAlreadyEnabled
#define gpuErrorAlreadyMapped hipErrorAlreadyMapped

namespace mpix {
inline namespace GPU_NAMESPACE {

/// HIP 5.2 has no priorities of nodes.
inline gpuError_t gpu_give_priority_of(gpuStream_t, gpuGraphNode_t) { return hipSuccess; }

inline gpuError_t gpu_instantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
  return hipGraphInstantiate(executable, graph, nullptr, nullptr, 0);
}

/// ROCTX would be one more library to link.
inline void gpu_begin_range(const char*) {}
inline void gpu_end_range() {}

inline bool gpu_is_capturing(gpuStream_t stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  if (hipStreamIsCapturing(stream, &status) == hipSuccess) return status == hipStreamCaptureStatusActive;
  (void)hipGetLastError();  // else the program's next look for an error would find it
  return false;
}

/// HIP has no numbers of streams, and its graphs do not wait for events outside.
inline std::uint64_t gpu_stream_number(gpuStream_t stream) { return reinterpret_cast<std::uintptr_t>(stream); }
inline gpuError_t gpu_wait_for_event(gpuStream_t stream, gpuEvent_t event, bool) {
  return hipStreamWaitEvent(stream, event, 0);
}
inline bool gpu_has_atomics_for_peers(int) { return false; }

inline std::uint32_t gpu_multiprocessors(int device) {
  int count = 0;
  if (hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, device) != hipSuccess)
    (void)hipGetLastError();
  return static_cast<std::uint32_t>(count);
}
/// How many blocks of a kernel a multiprocessor has room for.
inline std::uint32_t gpu_blocks_at_once(const void* kernel, unsigned threads) {
  int blocks = 0;
  if (hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0) != hipSuccess)
    (void)hipGetLastError();
  return static_cast<std::uint32_t>(blocks);
}

/// Memory that kernels of several GPUs poll and write while they run: ordinary memory is coherent between GPUs only
/// when kernels end.
inline gpuError_t gpu_malloc_shared(void** p, std::size_t bytes) {
  return hipExtMallocWithFlags(p, bytes, hipDeviceMallocFinegrained);
}

inline gpuError_t gpu_host_alloc(void** p, std::size_t bytes) {
  // Coherent: both sides see each other's stores while kernels run.
  return hipHostMalloc(p, bytes, hipHostMallocMapped | hipHostMallocPortable | hipHostMallocCoherent);
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
inline bool is_managed_memory(const gpuPointerAttributes& attributes) { return attributes.isManaged != 0; }

inline bool gpu_reads_pageable_memory(int device) {
  int can = 0;
  if (hipDeviceGetAttribute(&can, hipDeviceAttributePageableMemoryAccess, device) != hipSuccess)
    (void)hipGetLastError();
  return can != 0;
}

inline std::string gpu_hang_advice() { return ""; }

/// HIP 5.2 does not tell.
inline int gpu_device_of(gpuStream_t) { return -1; }

inline bool gpu_address_range(const void* p, void** base, std::size_t* bytes) {
  hipDeviceptr_t start = nullptr;
  if (hipMemGetAddressRange(&start, bytes, const_cast<void*>(p)) != hipSuccess) {
    (void)hipGetLastError();
    return false;
  }
  *base = start;
  return true;
}

/// HIP tells no such number.
inline std::uint64_t gpu_allocation_id(const void*) { return 0; }

// ---- memory operations of streams ------------------------------------------------------------------

/// HIP could not capture them until 2026: the kernels of a graph wait by themselves.
constexpr bool gpu_captures_memory_ops = false;

inline bool gpu_has_memory_ops(int device) {
  int can = 0;
  return hipDeviceGetAttribute(&can, hipDeviceAttributeCanUseStreamWaitValue, device) == hipSuccess && can != 0;
}

/// Empty, or what the error was.
inline std::string gpu_enqueue_memory_ops(gpuStream_t stream, const MemoryOp* ops, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const hipError_t error =
        ops[i].waits ? hipStreamWaitValue64(stream, ops[i].word, ops[i].value, hipStreamWaitValueGte, ~std::uint64_t{0})
                     : hipStreamWriteValue64(stream, ops[i].word, ops[i].value, 0);
    if (error == hipSuccess) continue;
    (void)hipGetLastError();
    return std::string("memory operation of a stream: ") + hipGetErrorName(error);
  }
  return "";
}

/// AMD GPUs run queues of several processes at once.
inline bool gpu_is_time_sliced(int) { return false; }

/// Nobody says that their links carry what neighbouring threads store as one.
constexpr bool gpu_has_packs = false;
__device__ inline void gpu_store_two(std::uint64_t* to, const std::uint64_t* words) {
  to[0] = words[0], to[1] = words[1];
}
__device__ inline void gpu_load_two(const std::uint64_t* from, std::uint64_t* words) {
  words[0] = from[0], words[1] = from[1];
}
__device__ inline bool gpu_all_of_warp(bool yes) { return __all(yes) != 0; }
__device__ inline void gpu_converge_warp() {}
inline bool gpu_link_carries_packs(int, std::uint64_t) { return false; }
inline bool gpu_some_link_carries_packs() { return false; }

/// A number that stands for the GPU, and for no other of any node; 0: not known.
inline std::uint64_t gpu_processor(int device) {
  char bus[64] = "";
  if (hipDeviceGetPCIBusId(bus, sizeof bus, device) != hipSuccess) {
    (void)hipGetLastError();
    return 0;
  }
  std::uint64_t number = 14695981039346656037u;  // FNV-1a
  const auto add = [&number](const char* text) {
    for (const char* c = text; *c; ++c) number = (number ^ static_cast<unsigned char>(*c)) * 1099511628211u;
  };
  char node[256] = "";
  (void)gethostname(node, sizeof node - 1);
  add(bus);
  add(node);
  return number | 1;
}

// ---- captures --------------------------------------------------------------------------------------

/// HIP 5.2 has no such tie.
inline bool gpu_tie_to_graph(gpuStream_t, void*, void (*)(void*)) { return false; }

/// The capture that a stream is in. Which node the next one will depend on matters to dependent launches only.
struct GpuCapture {
  bool active = false;
  unsigned long long id = 0;
  gpuGraph_t graph = nullptr;
  gpuGraphNode_t front = nullptr;
};

inline GpuCapture gpu_capture_of(gpuStream_t stream) {
  GpuCapture capture;
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  capture.active =
      hipStreamGetCaptureInfo(stream, &status, &capture.id) == hipSuccess && status == hipStreamCaptureStatusActive;
  return capture;
}

/// HIP 5.2 does not tell which graph a stream is captured into.
inline gpuGraphNode_t gpu_add_beside(gpuStream_t, const GpuCapture&, const void*, unsigned, void*) { return nullptr; }
inline gpuError_t gpu_continue_behind(gpuStream_t, gpuGraphNode_t, bool) { return hipErrorNotSupported; }

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

/// Load the kernel. None can be launched as a dependent one.
inline gpuError_t gpu_load(const void* kernel, bool* may_be_dependent) {
  *may_be_dependent = false;
  hipFuncAttributes attributes{};
  return hipFuncGetAttributes(&attributes, kernel);
}

/// A function of the device that its callers do not inline: what is seldom needed shall not take their registers.
#define GPU_OUT_OF_LINE static __device__ __noinline__

__device__ inline void gpu_wait_for_front() {}
__device__ inline void gpu_let_next_start() {}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
