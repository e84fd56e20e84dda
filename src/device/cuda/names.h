// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define GPU_HAS_RANGES 1
#endif

#include "device/cuda/machine_links.h"
#include "wire/guard.h"

/// CUDA's names for what device/gpu uses, and the few calls that the vendors do not share.
/// The counterpart is device/hip/names.h.

#define GPU_NAME "cuda"
/// Sources of device/gpu are compiled once for each vendor, into one library: their names must differ there.
#define GPU_NAMESPACE cuda
#define GPU_CALLBACK CUDART_CB
#define GPU_QUEUES_VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

/// A kernel argument whose address can be taken without a copy.
#define GPU_GRID_CONSTANT __grid_constant__

using gpuError_t = cudaError_t;
using gpuStream_t = cudaStream_t;
using gpuIpcMemHandle_t = cudaIpcMemHandle_t;
using gpuPointerAttributes = cudaPointerAttributes;
using gpuMemcpyKind = cudaMemcpyKind;
using gpuStreamCaptureMode = cudaStreamCaptureMode;
using gpuGraph_t = cudaGraph_t;
using gpuGraphNode_t = cudaGraphNode_t;
using gpuGraphExec_t = cudaGraphExec_t;
using gpuKernelNodeParams = cudaKernelNodeParams;
using gpuEvent_t = cudaEvent_t;

#define gpuSuccess cudaSuccess
#define gpuGetErrorName cudaGetErrorName
#define gpuGetErrorString cudaGetErrorString
#define gpuGetLastError cudaGetLastError
#define gpuGetDeviceCount cudaGetDeviceCount
#define gpuGetDevice cudaGetDevice
#define gpuSetDevice cudaSetDevice
#define gpuMalloc cudaMalloc
#define gpuMemsetAsync cudaMemsetAsync
#define gpuMemcpyAsync cudaMemcpyAsync
#define gpuMemcpy2DAsync cudaMemcpy2DAsync
#define gpuMemcpyDefault cudaMemcpyDefault
#define gpuMemcpyHostToDevice cudaMemcpyHostToDevice
#define gpuMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define gpuHostGetDevicePointer cudaHostGetDevicePointer
#define gpuHostRegister cudaHostRegister
#define gpuHostRegisterMapped cudaHostRegisterMapped
#define gpuHostRegisterPortable cudaHostRegisterPortable
#define gpuHostUnregister cudaHostUnregister
#define gpuIpcGetMemHandle cudaIpcGetMemHandle
#define gpuIpcOpenMemHandle cudaIpcOpenMemHandle
#define gpuIpcCloseMemHandle cudaIpcCloseMemHandle
#define gpuIpcMemLazyEnablePeerAccess cudaIpcMemLazyEnablePeerAccess
#define gpuPointerGetAttributes cudaPointerGetAttributes
#define gpuStreamCreateWithPriority cudaStreamCreateWithPriority
#define gpuDeviceGetStreamPriorityRange cudaDeviceGetStreamPriorityRange
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
#define gpuErrorNotReady cudaErrorNotReady
#define gpuEventCreate cudaEventCreate
#define gpuEventCreateWithFlags cudaEventCreateWithFlags
#define gpuEventDisableTiming cudaEventDisableTiming
#define gpuEventRecord cudaEventRecord
#define gpuEventQuery cudaEventQuery
#define gpuEventElapsedTime cudaEventElapsedTime
#define gpuEventDestroy cudaEventDestroy
#define gpuDeviceEnablePeerAccess cudaDeviceEnablePeerAccess
#define gpuErrorPeerAccessAlreadyEnabled cudaErrorPeerAccessAlreadyEnabled
#define gpuErrorAlreadyMapped cudaErrorAlreadyMapped

namespace mpix {
inline namespace GPU_NAMESPACE {

inline gpuError_t gpu_instantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
  return cudaGraphInstantiate(executable, graph, 0);
}

/// Nodes do not take the priority of the stream that their graph is launched into.
inline gpuError_t gpu_give_priority_of(gpuStream_t stream, gpuGraphNode_t node) {
  cudaLaunchAttributeValue value{};
  const cudaError_t error = cudaStreamGetPriority(stream, &value.priority);
  return error == cudaSuccess ? cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value) : error;
}

#if GPU_HAS_RANGES
inline void gpu_begin_range(const char* name) { (void)nvtxRangePushA(name); }
inline void gpu_end_range() { (void)nvtxRangePop(); }
#else
inline void gpu_begin_range(const char*) {}
inline void gpu_end_range() {}
#endif

inline bool gpu_is_capturing(gpuStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status == cudaStreamCaptureStatusActive;
  (void)cudaGetLastError();  // else the program's next look for an error would find it
  return false;
}

/// Negative: not known. The default streams are those of every device. Not for one that captures: to ask spoils the
/// capture.
inline int gpu_device_of(gpuStream_t stream) {
  int device = -1;
#if CUDART_VERSION >= 12080
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return -1;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess) (void)cudaGetLastError();
#else
  (void)stream;
#endif
  return device;
}

/// Of all streams that the program ever makes, where handles come again.
inline std::uint64_t gpu_stream_number(gpuStream_t stream) {
  unsigned long long number = 0;
  if (cudaStreamGetId(stream, &number) != cudaSuccess) (void)cudaGetLastError();
  return number;
}

/// Captured: each launch of the graph waits for where the event is then.
inline gpuError_t gpu_wait_for_event(gpuStream_t stream, gpuEvent_t event, bool captured) {
  return cudaStreamWaitEvent(stream, event, captured ? cudaEventWaitExternal : cudaEventWaitDefault);
}

/// What eight neighbouring threads store at once comes as one over NVLink, which is what has atomic operations for
/// other GPUs' memory; and so it does within a GPU.
constexpr bool gpu_has_packs = true;
__device__ inline void gpu_store_two(std::uint64_t* to, const std::uint64_t* words) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0],{%1,%2};" ::"l"(to), "l"(words[0]), "l"(words[1]) : "memory");
}
__device__ inline void gpu_load_two(const std::uint64_t* from, std::uint64_t* words) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];" : "=l"(words[0]), "=l"(words[1]) : "l"(from) : "memory");
}
__device__ inline bool gpu_all_of_warp(bool yes) { return __all_sync(0xffffffffu, yes) != 0; }
__device__ inline void gpu_converge_warp() { __syncwarp(); }

/// Of this process: under MPS it may have a share.
inline std::uint32_t gpu_multiprocessors(int device) {
  int count = 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) (void)cudaGetLastError();
  return static_cast<std::uint32_t>(count);
}
/// How many blocks of a kernel a multiprocessor has room for.
inline std::uint32_t gpu_blocks_at_once(const void* kernel, unsigned threads) {
  int blocks = 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0) != cudaSuccess)
    (void)cudaGetLastError();
  return static_cast<std::uint32_t>(blocks);
}

/// Memory that kernels of several GPUs poll and write while they run.
inline gpuError_t gpu_malloc_shared(void** p, std::size_t bytes) { return cudaMalloc(p, bytes); }

inline gpuError_t gpu_host_alloc(void** p, std::size_t bytes) {
  return cudaHostAlloc(p, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
}

/// The memory that a pointer lies in: which kind, and on which device.
inline bool is_device_memory(const gpuPointerAttributes& attributes) { return attributes.type == cudaMemoryTypeDevice; }
inline bool is_pinned_memory(const gpuPointerAttributes& attributes) { return attributes.type == cudaMemoryTypeHost; }
inline bool is_managed_memory(const gpuPointerAttributes& attributes) {
  return attributes.type == cudaMemoryTypeManaged;
}

inline bool gpu_reads_pageable_memory(int device) {
  int can = 0;
  if (cudaDeviceGetAttribute(&can, cudaDevAttrPageableMemoryAccess, device) != cudaSuccess) (void)cudaGetLastError();
  return can != 0;
}

/// To load a kernel at its first launch, CUDA may wait for kernels that run, and so for peers.
inline std::string gpu_hang_advice() {
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  if (loading && std::string(loading) == "EAGER") return "";
  return "a first launch of one of the program's own kernels may be waiting for this stream, while CUDA loads that "
         "kernel: "
         "CUDA_MODULE_LOADING=EAGER excludes that";
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

/// A number of the allocation that no other ever has, where addresses come again; 0: not known.
inline std::uint64_t gpu_allocation_id(const void* base) {
  static const auto call =
      gpu_driver_call<CUresult (*)(void*, CUpointer_attribute, CUdeviceptr)>("cuPointerGetAttribute");
  unsigned long long id = 0;
  if (!call || call(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(base)) != CUDA_SUCCESS) return 0;
  return id;
}

// ---- memory operations of streams ------------------------------------------------------------------

/// Those of a captured stream become part of the graph.
constexpr bool gpu_captures_memory_ops = true;

using GpuBatchCall = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
inline GpuBatchCall gpu_batch_call() {
  static const auto call = gpu_driver_call<GpuBatchCall>("cuStreamBatchMemOp");
  return call;
}

inline bool gpu_has_memory_ops(int device) {
  static const auto get_device = gpu_driver_call<CUresult (*)(CUdevice*, int)>("cuDeviceGet");
  static const auto get = gpu_driver_call<CUresult (*)(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
  CUdevice handle;
  int can = 0;
  return gpu_batch_call() && get_device && get && get_device(&handle, device) == CUDA_SUCCESS &&
         get(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, handle) == CUDA_SUCCESS && can != 0;
}

/// Empty, or what the driver's error was.
inline std::string gpu_enqueue_memory_ops(gpuStream_t stream, const MemoryOp* ops, std::size_t count) {
  std::vector<CUstreamBatchMemOpParams> batch(count);
  for (std::size_t i = 0; i < count; ++i) {
    CUstreamBatchMemOpParams& op = batch[i];
    op = CUstreamBatchMemOpParams{};
    if (ops[i].waits) {
      op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
      op.waitValue.address = reinterpret_cast<CUdeviceptr>(ops[i].word);
      op.waitValue.value64 = ops[i].value;
      op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
      op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      op.writeValue.address = reinterpret_cast<CUdeviceptr>(ops[i].word);
      op.writeValue.value64 = ops[i].value;
      op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
  }
  const CUresult result = gpu_batch_call()(stream, static_cast<unsigned>(count), batch.data(), 0);
  if (result == CUDA_SUCCESS) return "";
  const auto error = static_cast<cudaError_t>(result);  // the same numbers
  return std::string("cuStreamBatchMemOp: ") + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

/// Under MPS kernels of several processes run side by side.
inline bool gpu_is_time_sliced(int device) {
  int mps = 0;
#if CUDART_VERSION >= 12030
  if (cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, device) != cudaSuccess) (void)cudaGetLastError();
#else
  (void)device;
#endif
  return mps == 0;
}

// ---- links -----------------------------------------------------------------------------------------

/// A number that stands for the GPU, and for no other of any node; 0: not known.
inline std::uint64_t gpu_processor(int device) {
  static const auto get_device = gpu_driver_call<CUresult (*)(CUdevice*, int)>("cuDeviceGet");
  static const auto get_uuid = gpu_driver_call<CUresult (*)(CUuuid*, CUdevice)>("cuDeviceGetUuid");
  CUdevice handle;
  MachineLinks::Uuid uuid{};
  static_assert(sizeof uuid == sizeof(CUuuid));
  if (!get_uuid || get_device(&handle, device) != CUDA_SUCCESS ||
      get_uuid(reinterpret_cast<CUuuid*>(uuid.data()), handle) != CUDA_SUCCESS)
    return 0;
  return MachineLinks::processor_of(uuid);
}

/// The atomic operations of each of two that the process sees reach the other's memory.
inline bool gpu_has_atomics_for(int device, int other) {
  int native = 0;
  if (cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device, other) == cudaSuccess)
    return native != 0;
  (void)cudaGetLastError();
  return false;
}

inline int gpu_visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

/// Its atomic operations reach the memory of every GPU that it can map.
inline bool gpu_has_atomics_for_peers(int device) {
  const int count = gpu_visible_devices();
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other == device) continue;
    if (cudaDeviceCanAccessPeer(&can, device, other) != cudaSuccess) {
      (void)cudaGetLastError();
      return false;
    }
    if (can != 0 && !gpu_has_atomics_for(device, other)) return false;
  }
  if (sees_whole_machine(static_cast<std::size_t>(count))) return count > 0;
  const MachineLinks* const links = MachineLinks::of_this_machine();
  return links && links->has_atomics_for_peers(gpu_processor(device));
}

/// Stores of neighbouring threads arrive as one over the link to the GPU with that number. NVLink does that; it is what
/// has atomic operations, too.
inline bool gpu_link_carries_packs(int device, std::uint64_t processor) {
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  if (major < 7) return false;
  const int count = gpu_visible_devices();
  for (int other = 0; other < count; ++other)
    if (other != device && gpu_processor(other) == processor) return gpu_has_atomics_for(device, other);
  const MachineLinks* const links = MachineLinks::of_this_machine();
  return links && links->has_atomics(gpu_processor(device), processor);
}
/// Of some GPU that the process sees. For what has to be laid out before others are known.
inline bool gpu_some_link_carries_packs() {
  const int count = gpu_visible_devices();
  for (int one = 0; one < count; ++one)
    for (int other = 0; other < one; ++other)
      if (gpu_has_atomics_for(one, other)) return true;
  if (sees_whole_machine(static_cast<std::size_t>(count))) return false;
  const MachineLinks* const links = MachineLinks::of_this_machine();
  for (int one = 0; links && one < count; ++one)
    if (links->has_atomics_for_some(gpu_processor(one))) return true;
  return false;
}

// ---- captures --------------------------------------------------------------------------------------

/// destroy(pointer) when the last graph made of the capture that `stream` is in has been destroyed.
inline bool gpu_tie_to_graph(gpuStream_t stream, void* pointer, cudaHostFn_t destroy) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph);
#endif
  cudaUserObject_t object;
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive ||
      cudaUserObjectCreate(&object, pointer, destroy, 1, cudaUserObjectNoDestructorSync) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess) return true;
  (void)cudaGetLastError();
  // Releasing it would call destroy(): it stays, as what it keeps has to.
  return true;
}

/// The capture that a stream is in, and the one node that the next one will depend on (null: several, or none).
struct GpuCapture {
  bool active = false;
  unsigned long long id = 0;
  gpuGraph_t graph = nullptr;
  gpuGraphNode_t front = nullptr;
  bool front_may_run = false;  ///< still, when the next one starts
};

inline GpuCapture gpu_capture_of(gpuStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GpuCapture capture;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph, &nodes, &edges, &count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo_v3(stream, &status, &capture.id, &capture.graph, &nodes, &edges, &count);
#endif
  if (error != cudaSuccess) (void)cudaGetLastError();
  capture.active = error == cudaSuccess && status == cudaStreamCaptureStatusActive;
  if (capture.active && count == 1) {
    capture.front = nodes[0];
    capture.front_may_run = edges && edges[0].type != cudaGraphDependencyTypeDefault;
  }
  return capture;
}

/// Put a kernel with its one argument into the graph that a stream is captured into, behind all that the stream's next
/// operation would be behind, and leave the stream as it is: what comes next is not behind it. Null: not possible.
inline gpuGraphNode_t gpu_add_beside(gpuStream_t stream, const GpuCapture& capture, const void* kernel,
                                     unsigned threads, void* argument) {
  // With one node in front; and not where that is left behind before it has ended.
  if (!capture.active || !capture.front || capture.front_may_run) return nullptr;
  void* arguments[] = {argument};
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(kernel);
  params.gridDim = dim3(1);
  params.blockDim = dim3(threads);
  params.kernelParams = arguments;
  cudaGraphNode_t added = nullptr;
  if (cudaGraphAddKernelNode(&added, capture.graph, &capture.front, 1, &params) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  // It is part of the graph now, with its priority or without.
  if (gpu_give_priority_of(stream, added) != cudaSuccess) (void)cudaGetLastError();
  return added;
}

/// What a captured stream does next is behind `node`: too, or alone.
inline gpuError_t gpu_continue_behind(gpuStream_t stream, gpuGraphNode_t node, bool alone) {
  const unsigned flags = alone ? cudaStreamSetCaptureDependencies : cudaStreamAddCaptureDependencies;
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, flags);
#else
  return cudaStreamUpdateCaptureDependencies_v2(stream, &node, nullptr, 1, flags);
#endif
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

/// Whether the kernel may be launched as a dependent one: the code in use for it must have the waits that make
/// it right, and has them from compute capability 9.0 on. Also loads the kernel.
inline gpuError_t gpu_load(const void* kernel, bool* may_be_dependent) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  *may_be_dependent = error == cudaSuccess && attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
  return error;
}

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
