// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstring>

#include "support/domain.h"

/// Programs with channels from one source: with CUDA or HIP their blocks are those of a kernel, else threads. A kernel
/// is an object that is copied: `void operator()(const MPIX_Dev_team&) const`, marked MPIX_DEV_METHOD.
namespace support {

#if defined(__CUDACC__) || defined(__HIPCC__)
template <class Kernel>
__global__ void __launch_bounds__(1024) run_blocks(Kernel kernel) {
  kernel(MPIX_Dev_team_this());
}
template <class Kernel>
void launch_blocks(const Kernel& kernel, int blocks, int threads, void* stream = nullptr) {
#if defined(__HIPCC__)
  run_blocks<<<dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0,
               static_cast<hipStream_t>(stream)>>>(kernel);
#else
  run_blocks<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, static_cast<cudaStream_t>(stream)>>>(
      kernel);
#endif
  DOMAIN_CHECK_GPU(DOMAIN_GPU(GetLastError)());
}

/// CUDA loads a kernel when it is first launched, and for that may wait until those that run have ended: what is
/// launched while others wait for the program is loaded before.
template <class Kernel>
void load_blocks() {
#if defined(__HIPCC__)
  hipFuncAttributes attributes{};
  DOMAIN_CHECK_GPU(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&run_blocks<Kernel>)));
#else
  cudaFuncAttributes attributes{};
  DOMAIN_CHECK_GPU(cudaFuncGetAttributes(&attributes, run_blocks<Kernel>));
#endif
}

/// Memory of the device, and memory of the host that kernels reach; zeroed.
inline void* allocate_on_device(std::size_t bytes) {
  void* p = nullptr;
  DOMAIN_CHECK_GPU(DOMAIN_GPU(Malloc)(&p, bytes));
  DOMAIN_CHECK_GPU(DOMAIN_GPU(Memset)(p, 0, bytes));
  DOMAIN_CHECK_GPU(DOMAIN_GPU(DeviceSynchronize)());
  return p;
}
inline void release_on_device(void* p) { DOMAIN_CHECK_GPU(DOMAIN_GPU(Free)(p)); }
inline void* allocate_pinned(std::size_t bytes) {
  void* p = nullptr;
#if defined(__HIPCC__)
  DOMAIN_CHECK_GPU(hipHostMalloc(&p, bytes, hipHostMallocMapped | hipHostMallocCoherent));
#else
  DOMAIN_CHECK_GPU(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
#endif
  std::memset(p, 0, bytes);
  return p;
}
inline void release_pinned(void* p) {
#if defined(__HIPCC__)
  DOMAIN_CHECK_GPU(hipHostFree(p));
#else
  DOMAIN_CHECK_GPU(cudaFreeHost(p));
#endif
}
#else
template <class Kernel>
void launch_blocks(const Kernel& kernel, int blocks, int, void* stream = nullptr) {
  // Lives until the blocks, which are all there before one goes, have copied it.
  struct Shared {
    Kernel kernel;
    int left;
  };
  CHECK_MPI(MPIX_Host_stream_launch_grid(
      static_cast<MPIX_Host_stream>(stream), blocks,
      [](const MPIX_Dev_team* team, void* argument) {
        auto* const all = static_cast<Shared*>(argument);
        const Kernel mine = all->kernel;
        if (__atomic_sub_fetch(&all->left, 1, __ATOMIC_ACQ_REL) == 0) delete all;
        mine(*team);
      },
      new Shared{kernel, blocks}));
}
template <class Kernel>
void load_blocks() {}
inline void* allocate_on_device(std::size_t bytes) { return std::calloc(1, bytes); }
inline void release_on_device(void* p) { std::free(p); }
inline void* allocate_pinned(std::size_t bytes) { return std::calloc(1, bytes); }
inline void release_pinned(void* p) { std::free(p); }
#endif

}  // namespace support
