// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/abort.h"

/// Programs of a domain from one source: with CUDA or HIP their ranks are blocks, else threads. A kernel is an object
/// that is copied: `void operator()(MPIX_Dev_ctx&) const`, marked MPIX_DEV_METHOD.
namespace support {

#if defined(__CUDACC__) || defined(__HIPCC__)
constexpr bool ranks_are_blocks = true;

#if defined(__HIPCC__)
#define DOMAIN_GPU(name) hip##name
#else
#define DOMAIN_GPU(name) cuda##name
#endif
#define DOMAIN_CHECK_GPU(call)                                   \
  if (const auto error_ = (call); error_ != DOMAIN_GPU(Success)) \
  std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, DOMAIN_GPU(GetErrorString)(error_)), std::abort()

/// Of so many threads at most; of so many blocks that a multiprocessor takes at once.
template <class Kernel, int threads, int blocks>
__global__ void __launch_bounds__(threads, blocks) run_kernel(MPIX_Dev_param param, Kernel kernel) {
  __shared__ MPIX_Dev_ctx ctx;
  if (MPIX_Dev_init(&ctx, param) != MPI_SUCCESS) return;
  kernel(ctx);
  MPIX_Dev_finish(&ctx);
}
template <int most_threads = 512, int blocks = 1, class Kernel>
int launch(MPIX_Dev dev, const Kernel& kernel, int threads, void* stream = nullptr) {
  return MPIX_Dev_launch(dev, run_kernel<Kernel, most_threads, blocks>, dim3(static_cast<unsigned>(threads)), 0, stream,
                         kernel);
}
template <class Kernel, int most_threads = 512, int blocks = 1>
int max_ranks(int threads, MPIX_Dev dev = MPIX_DEV_NULL) {
  int ranks = 0;
  CHECK_MPI(MPIX_Dev_max_ranks(dev, run_kernel<Kernel, most_threads, blocks>, threads, 0, &ranks));
  return ranks;
}
inline int gpus() {
  int count = 0;
  DOMAIN_CHECK_GPU(DOMAIN_GPU(GetDeviceCount)(&count));
  return count;
}
inline void choose_gpu(int local_rank) { DOMAIN_CHECK_GPU(DOMAIN_GPU(SetDevice)(local_rank % gpus())); }
inline int multiprocessors() {
  int gpu = 0, count = 0;
  DOMAIN_CHECK_GPU(DOMAIN_GPU(GetDevice)(&gpu));
#if defined(__HIPCC__)
  DOMAIN_CHECK_GPU(hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, gpu));
#else
  DOMAIN_CHECK_GPU(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu));
#endif
  return count;
}
/// Where rank r takes GPU r modulo the number there are.
inline int processes_of_the_gpu() {
  int processes = 1;
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
  return (processes + gpus() - 1) / gpus();
}
inline void synchronize() { DOMAIN_CHECK_GPU(DOMAIN_GPU(DeviceSynchronize)()); }
inline void to_host(void* to, const void* from, std::size_t bytes) {
  DOMAIN_CHECK_GPU(DOMAIN_GPU(Memcpy)(to, from, bytes, DOMAIN_GPU(MemcpyDeviceToHost)));
}
inline void from_host(void* to, const void* from, std::size_t bytes) {
  DOMAIN_CHECK_GPU(DOMAIN_GPU(Memcpy)(to, from, bytes, DOMAIN_GPU(MemcpyHostToDevice)));
}
#else
constexpr bool ranks_are_blocks = false;

template <int = 512, int = 1, class Kernel>
int launch(MPIX_Dev dev, const Kernel& kernel, int, void* stream = nullptr) {
  // Lives until the ranks, which are all there before it goes, have copied it.
  struct Shared {
    Kernel kernel;
    int left;
  };
  MPIX_Dev_param param;
  if (const int told = MPIX_Dev_get_param(dev, &param)) return told;
  auto* const shared = new Shared{kernel, static_cast<int>(param.ranks_here)};
  if (shared->left == 0) {
    delete shared;
    return MPI_SUCCESS;
  }
  const int launched = MPIX_Dev_launch_host(
      dev,
      [](MPIX_Dev_param own, void* argument) {
        auto* const all = static_cast<Shared*>(argument);
        const Kernel mine = all->kernel;
        if (__atomic_sub_fetch(&all->left, 1, __ATOMIC_ACQ_REL) == 0) delete all;
        MPIX_Dev_ctx ctx;
        if (MPIX_Dev_init(&ctx, own) != MPI_SUCCESS) return;
        mine(ctx);
        MPIX_Dev_finish(&ctx);
      },
      shared, stream);
  if (launched != MPI_SUCCESS) delete shared;
  return launched;
}
template <class Kernel, int = 512, int = 1>
int max_ranks(int, MPIX_Dev = MPIX_DEV_NULL) {
  return 4;
}
inline void choose_gpu(int) {}
inline int multiprocessors() { return 1; }
inline int processes_of_the_gpu() { return 1; }
inline void synchronize() { CHECK_MPI(MPIX_Host_stream_synchronize(nullptr)); }
inline void to_host(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void from_host(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

/// A domain with memory and windows, which end with it.
class Domain {
 public:
  Domain(MPI_Comm comm, int ranks_here, MPI_Info info = MPI_INFO_NULL) : ranks_here_(ranks_here) {
    CHECK_MPI(MPIX_Dev_create(comm, ranks_here, info, &dev_));
  }
  ~Domain() { CHECK_MPI(MPIX_Dev_free(&dev_)); }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  operator MPIX_Dev() const { return dev_; }

  char* allocate(std::size_t bytes) {
    void* base = nullptr;
    CHECK_MPI(MPIX_Dev_alloc(dev_, std::max<std::size_t>(bytes, 1), &base));
    return static_cast<char*>(base);
  }
  /// `bytes` of each rank, one behind the other.
  MPIX_Dev_win window_over(char* base, std::size_t bytes) {
    std::vector<void*> bases;
    std::vector<std::size_t> sizes;
    for (int i = 0; i < ranks_here_; ++i) {
      bases.push_back(base + static_cast<std::size_t>(i) * bytes);
      sizes.push_back(bytes);
    }
    MPIX_Dev_win window = -1;
    CHECK_MPI(MPIX_Dev_win_create(dev_, bases.data(), sizes.data(), &window));
    return window;
  }
  /// The first error that a rank here met.
  void check() const {
    int error_class = MPI_SUCCESS;
    char text[512] = "";
    CHECK_MPI(MPIX_Dev_error(dev_, 0, &error_class, text, sizeof text));
    if (error_class == MPI_SUCCESS) return;
    std::fprintf(stderr, "%s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  MPIX_Dev dev_ = MPIX_DEV_NULL;
  const int ranks_here_;
};

}  // namespace support
