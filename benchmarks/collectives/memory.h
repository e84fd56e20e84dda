// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "benchmarks/dev/stream.h"
#include "support/abort.h"
#include "support/domain.h"

/// Memory of a GPU, or of the host where streams are the host's, and copies in stream order.
namespace place {

#if defined(__CUDACC__) || defined(__HIPCC__)
inline void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  DOMAIN_CHECK_GPU(DOMAIN_GPU(Malloc)(&memory, bytes));
  return memory;
}
inline void release(void* memory) { DOMAIN_CHECK_GPU(DOMAIN_GPU(Free)(memory)); }

inline void copy(launcher::Stream& stream, void* to, const void* from, std::size_t bytes) {
  DOMAIN_CHECK_GPU(DOMAIN_GPU(MemcpyAsync)(to, from, bytes, DOMAIN_GPU(MemcpyDefault), stream.handle()));
}

/// Kernels reach memory of the host that nobody has allocated for them.
inline void pin(void* memory, std::size_t bytes) {
  DOMAIN_CHECK_GPU(DOMAIN_GPU(HostRegister)(memory, bytes, DOMAIN_GPU(HostRegisterDefault)));
}
inline void unpin(void* memory) { DOMAIN_CHECK_GPU(DOMAIN_GPU(HostUnregister)(memory)); }
#else
/// As other processes can map it: it is to be attached.
inline void* allocate(std::size_t bytes) {
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
  void* memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), info, &memory));
  CHECK_MPI(MPI_Info_free(&info));
  return memory;
}
inline void release(void* memory) { CHECK_MPI(MPI_Free_mem(memory)); }

inline void copy(launcher::Stream& stream, void* to, const void* from, std::size_t bytes) {
  struct Job {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  auto job = std::make_unique<Job>(Job{to, from, bytes});
  const auto run_and_delete = [](void* argument) {
    const std::unique_ptr<Job> mine(static_cast<Job*>(argument));
    std::memcpy(mine->to, mine->from, mine->bytes);
  };
  CHECK_MPI(MPIX_Host_stream_launch(stream.handle(), run_and_delete, job.release()));
}

inline void pin(void*, std::size_t) {}
inline void unpin(void*) {}
#endif

/// Zeroed.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 8)), base_(allocate(bytes_)) {
#if defined(__CUDACC__) || defined(__HIPCC__)
    DOMAIN_CHECK_GPU(DOMAIN_GPU(Memset)(base_, 0, bytes_));
    support::synchronize();  // not all streams wait for it
#else
    std::memset(base_, 0, bytes_);
#endif
  }
  ~Memory() { release(base_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(base_);
  }

 private:
  const std::size_t bytes_;
  void* const base_;
};

/// What a stream has left there.
template <class T>
T fetch(launcher::Stream& stream, const T* from) {
  T value;
  stream.synchronize();
  support::to_host(&value, from, sizeof value);
  return value;
}

}  // namespace place
