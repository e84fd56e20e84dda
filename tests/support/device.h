// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "random.h"
#include "support/platform.h"

/// Where the streams of the tests run and their memory lies, as MPIX_DEVICE says: host streams, or a GPU.
/// Data is written and checked by what runs in stream order: callbacks of host streams, kernels of a GPU.
/// Knows no MPI, as the compilers of GPUs read it too.
namespace test {

using support::Kind;

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
  explicit Device(std::unique_ptr<support::Platform> platform)
      : platform_(std::move(platform)), own_(platform_->create_stream()) {}
  virtual ~Device() { platform_->destroy_stream(own_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  const char* name() const { return platform_->name(); }
  bool is_host() const { return !platform_->is_gpu(); }

  // Streams. destroy_stream waits.
  void* create_stream() { return platform_->create_stream(); }
  void destroy_stream(void* stream) { platform_->destroy_stream(stream); }
  void wait_for(void* stream) { platform_->synchronize(stream); }
  /// A stream for what is prepared and looked at besides the streams of a test case.
  void* own_stream() const { return own_; }
  /// What `enqueue` enqueues on the stream, to be launched there again and again. On GPUs.
  std::unique_ptr<support::Graph> capture(void* stream, const std::function<void()>& enqueue) {
    return platform_->capture(stream, enqueue);
  }

  /// A GPU's is kept for the next of its size: cudaFree waits for the streams of all threads, and those may wait for a
  /// peer.
  char* allocate(Kind kind, std::size_t bytes);
  void release(Kind kind, char* base);
  /// Of a GPU, whoever uses it. On hosts 0.
  virtual long free_bytes() { return 0; }
  /// For all streams of the process, on a GPU.
  virtual void wait_for_all() {}

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
  void write(void* to, const void* from, std::size_t bytes) { read(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes);

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

  const std::unique_ptr<support::Platform> platform_;
  void* const own_;
  std::mutex mutex_;
  std::multimap<std::pair<Kind, std::size_t>, char*> idle_;
  std::map<char*, std::size_t> sizes_;
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

}  // namespace test
