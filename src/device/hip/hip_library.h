// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>

/// The calls of HIP's runtime that this library makes, but for those that have overloads (below).
#define MPIX_HIP_CALLS(CALL)            \
  CALL(__hipPopCallConfiguration)       \
  CALL(hipDeviceEnablePeerAccess)       \
  CALL(hipDeviceGetAttribute)           \
  CALL(hipDeviceGetPCIBusId)            \
  CALL(hipDeviceGetStreamPriorityRange) \
  CALL(hipEventCreate)                  \
  CALL(hipEventCreateWithFlags)         \
  CALL(hipEventDestroy)                 \
  CALL(hipEventElapsedTime)             \
  CALL(hipEventQuery)                   \
  CALL(hipEventRecord)                  \
  CALL(hipExtMallocWithFlags)           \
  CALL(hipFuncGetAttributes)            \
  CALL(hipGetDevice)                    \
  CALL(hipGetDeviceCount)               \
  CALL(hipGetErrorName)                 \
  CALL(hipGetErrorString)               \
  CALL(hipGetLastError)                 \
  CALL(hipGraphAddKernelNode)           \
  CALL(hipGraphCreate)                  \
  CALL(hipGraphDestroy)                 \
  CALL(hipGraphExecDestroy)             \
  CALL(hipGraphInstantiate)             \
  CALL(hipGraphLaunch)                  \
  CALL(hipHostGetDevicePointer)         \
  CALL(hipHostRegister)                 \
  CALL(hipHostUnregister)               \
  CALL(hipIpcCloseMemHandle)            \
  CALL(hipIpcGetMemHandle)              \
  CALL(hipIpcOpenMemHandle)             \
  CALL(hipLaunchKernel)                 \
  CALL(hipMemGetAddressRange)           \
  CALL(hipMemcpy2DAsync)                \
  CALL(hipMemcpyAsync)                  \
  CALL(hipMemsetAsync)                  \
  CALL(hipPointerGetAttributes)         \
  CALL(hipSetDevice)                    \
  CALL(hipStreamCreateWithPriority)     \
  CALL(hipStreamDestroy)                \
  CALL(hipStreamGetCaptureInfo)         \
  CALL(hipStreamIsCapturing)            \
  CALL(hipStreamSynchronize)            \
  CALL(hipStreamWaitEvent)              \
  CALL(hipStreamWaitValue64)            \
  CALL(hipStreamWriteValue64)           \
  CALL(hipThreadExchangeStreamCaptureMode)

namespace mpix {

/// HIP's runtime (libamdhip64) is loaded when an AMD GPU is first asked for, and not linked: it would take a dozen ms
/// and 50 mappings before main() of every program, also where there is no such GPU. Throws Error where it cannot be
/// loaded, each time; before it has returned nothing below may be called.
void load_hip_library();

inline namespace hip {

/// Each call is a pointer here, of the same name: code in this namespace finds it before the vendor's declaration. A
/// call that the list lacks is a symbol that the linker does not find.
#define MPIX_HIP_POINTER(call) extern decltype(&::call) call;
MPIX_HIP_CALLS(MPIX_HIP_POINTER)
#undef MPIX_HIP_POINTER
extern hipError_t (*hipHostMalloc)(void** p, std::size_t bytes, unsigned flags);
extern hipError_t (*hipMalloc)(void** p, std::size_t bytes);
extern hipError_t (*hipOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, const void* kernel, int threads,
                                                                  std::size_t shared_bytes);

}  // namespace hip
}  // namespace mpix
