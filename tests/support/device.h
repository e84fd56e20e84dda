// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "random.h"

/// Where the streams of the tests run and their memory lies, as MPIX_DEVICE says: host streams, or a GPU.
/// Data is written and checked by what runs in stream order: callbacks of host streams, kernels of a GPU.
/// Knows no MPI, as the compilers of GPUs read it too.
namespace test {

/// Kinds of memory that a window, or an origin buffer, may lie in.
enum class Kind {
  mapped,    ///< peers can map it: MPI_Alloc_mem(mpix:device), cudaMalloc
  unmapped,  ///< peers cannot: malloc, a stream-ordered pool
  pinned,    ///< the host's, reached by the GPU. On the host: as unmapped
};

/// A check in the source, and what it was about.
struct Place {
  const char* file;
  int line;
  std::string what;
};
#define HERE(context)           \
  test::Place {                 \
    __FILE__, __LINE__, [&] {   \
      std::ostringstream text_; \
      text_ << context;         \
      return text_.str();       \
    }()                         \
  }

/// A flag that the host sets and a stream waits for.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void open() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  virtual bool is_host() const = 0;

  // Streams. destroy_stream waits.
  virtual void* create_stream() = 0;
  virtual void destroy_stream(void* stream) = 0;
  virtual void wait_for(void* stream) = 0;
  /// A stream for what is prepared and looked at besides the streams of a test case.
  virtual void* own_stream() = 0;

  // Memory. Never given back to the system while the process runs: cudaFree waits for the streams of all
  // threads, and those may wait for a peer.
  virtual char* allocate(Kind kind, std::size_t bytes) = 0;
  virtual void release(Kind kind, char* base) = 0;

  // Enqueue.
  virtual void fill(void* stream, void* to, std::size_t bytes, Pattern pattern, std::size_t position = 0) = 0;
  virtual void set(void* stream, void* to, std::size_t bytes, char value) = 0;
  /// ++*number, for patterns that are counted_by(number).
  virtual void count(void* stream, std::uint64_t* number) = 0;
  virtual void delay(void* stream, int microseconds) = 0;
  virtual std::unique_ptr<Gate> hold(void* stream) = 0;
  void check(void* stream, const void* at, std::size_t bytes, Pattern pattern, const Place& place,
             std::size_t position = 0);
  void check_same(void* stream, const void* one, const void* other, std::size_t bytes, const Place& place);

  // Now: what the host writes or sees. Waits for no stream.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;

  /// The checks that have failed since the last call, and a text for each.
  std::vector<Place> take_reports();
  /// They are failures of the test case.
  void collect();
  /// Checks that went into graphs, so far; and what a graph runs of them is expected to run at the end.
  std::uint64_t captured_checks() const { return captured_; }
  void expect_replays(std::uint64_t checks, std::uint64_t replays) { enqueued_ += checks * replays; }
  /// At the end of a test case, when all its streams are done: every check that was enqueued must have run.
  void end_case();

 protected:
  struct Failure {
    std::uint32_t check;     ///< as passed to enqueue_…; unnoted: which is not known
    std::uint64_t position;  ///< of the byte
    std::uint64_t number;    ///< of a pattern that is counted
    unsigned char found, expected;
  };
  static constexpr std::uint32_t unnoted = 0xffffffff;
  /// Enqueue a check; false: into a graph, so that it does not run now.
  virtual bool enqueue_check(void* stream, const void* at, std::size_t bytes, Pattern pattern, std::size_t position,
                             std::uint32_t check) = 0;
  virtual bool enqueue_check_same(void* stream, const void* one, const void* other, std::size_t bytes,
                                  std::uint32_t check) = 0;
  /// What has failed since the last call.
  virtual std::vector<Failure> take_failures() = 0;
  /// Checks that have run, ever.
  virtual std::uint64_t checks_run() = 0;

 private:
  std::uint32_t remember(const Place& place);

  std::mutex mutex_;
  std::deque<Place> places_;
  std::atomic<std::uint64_t> enqueued_{0};
  std::atomic<std::uint64_t> captured_{0};
  std::uint64_t run_before_ = 0;
};

Device& device();

/// Chosen by MPIX_DEVICE; throws where there is none. Before MPI_Init there are settings to be made.
void prepare_device();
void start_device(int rank);
/// Before MPI_Finalize.
void stop_device();

/// Null where there is no GPU, or the tests were built without it.
std::unique_ptr<Device> make_host_device();
std::unique_ptr<Device> make_cuda_device(int rank);
std::unique_ptr<Device> make_hip_device(int rank);

/// A call of the device failed: a failure of this rank, in any thread.
[[noreturn]] void device_failure(const std::string& what);

}  // namespace test
