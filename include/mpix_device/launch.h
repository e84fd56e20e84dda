// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdio>

/// How programs launch kernels of a domain: here, and not in the library, as a kernel is known to the runtime that the
/// program was linked with, which as a rule is a copy of its own.
#if defined(__CUDACC__) || defined(__HIPCC__)

namespace mpix {
namespace dev {

#if defined(__HIPCC__)
using gpuError = hipError_t;
using gpuStream = hipStream_t;
constexpr gpuError gpu_success = hipSuccess;
inline const char* name_of(gpuError error) { return hipGetErrorName(error); }
inline gpuError launch_resident(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                gpuStream stream) {
  return hipLaunchCooperativeKernel(kernel, grid, block, arguments, static_cast<unsigned>(shared), stream);
}
inline gpuError resident(const void* kernel, int threads, std::size_t shared, int* blocks, int* multiprocessors) {
  int gpu = 0;
  gpuError error = hipGetDevice(&gpu);
  if (error == hipSuccess) error = hipDeviceGetAttribute(multiprocessors, hipDeviceAttributeMultiprocessorCount, gpu);
  if (error == hipSuccess) error = hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
  return error;
}
#else
using gpuError = cudaError_t;
using gpuStream = cudaStream_t;
constexpr gpuError gpu_success = cudaSuccess;
inline const char* name_of(gpuError error) { return cudaGetErrorName(error); }
inline gpuError launch_resident(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                gpuStream stream) {
  return cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, stream);
}
inline gpuError resident(const void* kernel, int threads, std::size_t shared, int* blocks, int* multiprocessors) {
  int gpu = 0;
  gpuError error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
  return error;
}
#endif

template <class... Parameters>
inline int launch(MPIX_Dev dev, void (*kernel)(MPIX_Dev_param, Parameters...), dim3 threads, std::size_t shared,
                  void* stream, Parameters... arguments) {
  MPIX_Dev_param param;
  int sharers = 1;
  const int asked = MPIX_Dev_sharers(dev, &sharers);
  if (asked != MPI_SUCCESS) return asked;
  const int begun = MPIX_Dev_begin_launch(dev, stream, MPIX_DEV_ABI, &param);
  if (begun != MPI_SUCCESS || param.ranks_here == 0) return begun;
  // All at once, with those of other processes that share the GPU: else some would wait for others that cannot begin.
  int blocks = 0, multiprocessors = 0;
  const int size = static_cast<int>(threads.x * threads.y * threads.z);
  gpuError error = resident(reinterpret_cast<const void*>(kernel), size, shared, &blocks, &multiprocessors);
  if (error != gpu_success) return MPIX_Dev_end_launch(dev, name_of(error));
  const int fitting = blocks * multiprocessors / sharers;
  if (static_cast<int>(param.ranks_here) > fitting) {
    char why[64];
    std::snprintf(why, sizeof why, "at most %d fit", fitting);
    return MPIX_Dev_end_launch(dev, why);
  }
  void* all[] = {&param, static_cast<void*>(&arguments)...};
  error = launch_resident(reinterpret_cast<const void*>(kernel), dim3(param.ranks_here), threads, all, shared,
                          static_cast<gpuStream>(stream));
  return MPIX_Dev_end_launch(dev, error == gpu_success ? nullptr : name_of(error));
}

template <class T>
struct Same {
  using type = T;
};

}  // namespace dev
}  // namespace mpix

/* How many ranks of this kernel fit on the GPU in use at once, for this process (processes of the domain that share the
 * GPU share it evenly; MPIX_DEV_NULL: before there is a domain, as if no other did). */
template <class Kernel>
inline int MPIX_Dev_max_ranks(MPIX_Dev dev, Kernel* kernel, int threads, size_t shared, int* ranks) {
  int sharers = 1, blocks = 0, multiprocessors = 0;
  const int asked = dev ? MPIX_Dev_sharers(dev, &sharers) : MPI_SUCCESS;
  if (asked != MPI_SUCCESS) return asked;
  if (mpix::dev::resident(reinterpret_cast<const void*>(kernel), threads, shared, &blocks, &multiprocessors) !=
      mpix::dev::gpu_success)
    return MPI_ERR_OTHER;
  *ranks = blocks * multiprocessors / sharers;
  return MPI_SUCCESS;
}

/* Enqueue kernel(param, arguments...): ranks_here blocks, all at once or not at all. */
template <class... Parameters>
inline int MPIX_Dev_launch(MPIX_Dev dev, void (*kernel)(MPIX_Dev_param, Parameters...), dim3 threads, size_t shared,
                           void* stream, typename mpix::dev::Same<Parameters>::type... arguments) {
  return mpix::dev::launch<Parameters...>(dev, kernel, threads, shared, stream, arguments...);
}

#endif
