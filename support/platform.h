// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

/// Where the streams of tests and benchmarks run, and their memory lies: host streams, or a GPU.
/// Knows no MPI, as the compilers of GPUs read it too.
namespace support {

enum class Vendor { cuda, hip };

/// Kinds of memory that a window, or an origin buffer, may lie in.
enum class Kind {
  mapped,    ///< peers can map it: MPI_Alloc_mem(mpix:device), cudaMalloc
  unmapped,  ///< peers cannot: of operator new, of a stream-ordered pool
  pinned,    ///< the host's, reached by the GPU. On the host: as unmapped
};

/// A kernel with its arguments. A stream refers to it and runs it later, so it must outlive that.
class Launchable {
 public:
  virtual ~Launchable() = default;
  virtual void run_on_host() const = 0;
  virtual void launch_on_gpu(Vendor vendor, void* stream) const = 0;
};

/// What was captured of a stream, to be enqueued there again and again.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;
};

/// A call that fails ends in platform_failure(), but for memory that there is not: std::bad_alloc. Calls come from any
/// thread, and leave its current GPU as it was.
class Platform {
 public:
  virtual ~Platform() = default;
  virtual const char* name() const = 0;  ///< as MPIX_DEVICE has it
  virtual std::string describe() const = 0;
  virtual bool is_gpu() const = 0;

  virtual void* create_stream() = 0;
  /// Waits.
  virtual void destroy_stream(void* stream) = 0;
  virtual void synchronize(void* stream) = 0;
  /// What comes to `then` from here on waits for what `first` has. Only on a GPU; by one thread at a time.
  virtual void order(void* first, void* then) = 0;

  virtual void* allocate(Kind kind, std::size_t bytes) = 0;
  /// Of a GPU, other than memory of a pool: waits for what runs there.
  virtual void release(Kind kind, void* memory) noexcept = 0;
  /// Let the GPU copy at full speed to and from what somebody else has allocated. False: not possible.
  virtual bool pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  // In stream order; done for certain after synchronize().
  virtual void copy(void* stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void launch(void* stream, const Launchable& kernel) = 0;
  /// What `enqueue` enqueues on the stream, as a graph. Only on a GPU.
  virtual std::unique_ptr<Graph> capture(void* stream, const std::function<void()>& enqueue) = 0;
};

std::unique_ptr<Platform> make_host_platform();
/// Null: not built, or no such GPU. Of n GPUs, rank r of a node takes number r modulo n, and makes it the current one
/// of the calling thread.
std::unique_ptr<Platform> make_cuda_platform(int local_rank);
std::unique_ptr<Platform> make_hip_platform(int local_rank);

/// A call of the vendor's runtime or of libmpix failed. Defined by whoever links this.
[[noreturn]] void platform_failure(const std::string& what);

}  // namespace support
