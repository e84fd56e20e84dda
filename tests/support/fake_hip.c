/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors
 *
 * Stands in for HIP's runtime, with one device that does nothing: it takes down which kernels are registered, loaded
 * and launched. tests/mpi/hip.sh puts it where libmpix looks for the runtime. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CALL __attribute__((visibility("default")))
#define NOTHING(name) \
  CALL int name(void) { return 0; }

struct dim3 {
  unsigned x, y, z;
};
enum { most = 256, not_registered = 98 };
static struct {
  const void* stub;
  const char* name;
} kernels[most];
static void* binaries[most];
static int kernel_count, binary_count, taken_back;
static char lines[1 << 16];

static void note(const char* format, ...) {
  va_list arguments;
  size_t used = strlen(lines);
  va_start(arguments, format);
  vsnprintf(lines + used, sizeof lines - used, format, arguments);
  va_end(arguments);
}

CALL const char* fake_hip_lines(void) { return lines; }

static void __attribute__((destructor)) end(void) {
  printf("fake_hip: %d binaries, %d taken back\n", binary_count, taken_back);
}

static int number_of(void** handle) {
  return handle >= binaries && handle < binaries + binary_count ? (int)(handle - binaries) : -1;
}

static int look(const char* what, const void* stub) {
  for (int i = 0; i < kernel_count; ++i)
    if (kernels[i].stub == stub) {
      note("%s %s\n", what, kernels[i].name);
      return 0;
    }
  note("%s a kernel that is not registered\n", what);
  return not_registered;
}

CALL void** __hipRegisterFatBinary(const void* wrapper) {
  note("binary %d at %p\n", binary_count, wrapper);
  return &binaries[binary_count++];
}

CALL void __hipRegisterFunction(void** binary, const void* stub, char* symbol, const char* name, unsigned threads,
                                void* thread, void* block, void* block_size, void* grid_size, int* warp_size) {
  note("kernel %s of %d: %p %s %d %p %p %p %p %p\n", name, number_of(binary), stub, symbol, (int)threads, thread, block,
       block_size, grid_size, (void*)warp_size);
  kernels[kernel_count].stub = stub;
  kernels[kernel_count++].name = name;
}

CALL void __hipUnregisterFatBinary(void** binary) { taken_back += number_of(binary) >= 0; }

CALL int hipGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
CALL int hipGetDevice(int* device) {
  *device = 0;
  return 0;
}
CALL const char* hipGetErrorName(int error) { return error == not_registered ? "not registered" : "?"; }
CALL const char* hipGetErrorString(int error) { return hipGetErrorName(error); }
CALL int hipFuncGetAttributes(void* attributes, const void* stub) {
  (void)attributes;
  return look("load", stub);
}
CALL int hipLaunchKernel(const void* stub, struct dim3 grid, struct dim3 block, void** arguments, size_t shared_bytes,
                         void* stream) {
  (void)grid, (void)block, (void)arguments, (void)shared_bytes, (void)stream;
  return look("launch", stub);
}

NOTHING(__hipPopCallConfiguration)
NOTHING(hipDeviceEnablePeerAccess)
NOTHING(hipDeviceGetAttribute)
NOTHING(hipDeviceGetPCIBusId)
NOTHING(hipDeviceGetStreamPriorityRange)
NOTHING(hipEventCreate)
NOTHING(hipEventCreateWithFlags)
NOTHING(hipEventDestroy)
NOTHING(hipEventElapsedTime)
NOTHING(hipEventQuery)
NOTHING(hipEventRecord)
NOTHING(hipExtMallocWithFlags)
NOTHING(hipGetLastError)
NOTHING(hipGraphAddKernelNode)
NOTHING(hipGraphCreate)
NOTHING(hipGraphDestroy)
NOTHING(hipGraphExecDestroy)
NOTHING(hipGraphInstantiate)
NOTHING(hipGraphLaunch)
NOTHING(hipHostGetDevicePointer)
NOTHING(hipHostMalloc)
NOTHING(hipHostRegister)
NOTHING(hipHostUnregister)
NOTHING(hipIpcCloseMemHandle)
NOTHING(hipIpcGetMemHandle)
NOTHING(hipIpcOpenMemHandle)
NOTHING(hipMalloc)
NOTHING(hipMemGetAddressRange)
NOTHING(hipMemcpy2DAsync)
NOTHING(hipMemcpyAsync)
NOTHING(hipMemsetAsync)
NOTHING(hipOccupancyMaxActiveBlocksPerMultiprocessor)
NOTHING(hipPointerGetAttributes)
NOTHING(hipSetDevice)
NOTHING(hipStreamCreateWithPriority)
NOTHING(hipStreamDestroy)
NOTHING(hipStreamGetCaptureInfo)
NOTHING(hipStreamIsCapturing)
NOTHING(hipStreamSynchronize)
NOTHING(hipStreamWaitEvent)
NOTHING(hipStreamWaitValue64)
NOTHING(hipStreamWriteValue64)
NOTHING(hipThreadExchangeStreamCaptureMode)
