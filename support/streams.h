// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix.h>
#include <mpix_device.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "mpix_device/memory.h"
#include "support/channel.h"

#if defined(__CUDACC__)
#include <cuda.h>
#endif

/// Streams beside the one without a name, for programs that are the same source with threads and with blocks.
namespace support {

/// Of threads that wait: on a host blocks and ranks may have to share cores.
inline void let_others_run() {
  if (!ranks_are_blocks) sched_yield();
}
MPIX_DEV_FN void let_other_blocks_run() {
#if !defined(__CUDACC__) && !defined(__HIPCC__)
  sched_yield();
#endif
}

class Stream {
 public:
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* handle() const { return stream_; }

#if defined(__CUDACC__) || defined(__HIPCC__)
  Stream() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamCreateWithFlags)(&stream_, DOMAIN_GPU(StreamNonBlocking))); }
  ~Stream() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamDestroy)(stream_)); }
  void synchronize() { DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamSynchronize)(stream_)); }

  /// Copies; then `word`, in memory of the host that the GPU reaches, becomes `value`: no call has to ask.
  void copy_to_host_and_tell(void* to, const void* from, std::size_t bytes, std::uint64_t* word, std::uint64_t value) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(MemcpyAsync)(to, from, bytes, DOMAIN_GPU(MemcpyDeviceToHost), stream_));
#if defined(__HIPCC__)
    DOMAIN_CHECK_GPU(hipStreamWriteValue64(stream_, word, value, 0));
#else
    using Call = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    static const Call write_value = [] {
      void* entry = nullptr;
      cudaDriverEntryPointQueryResult found;
      DOMAIN_CHECK_GPU(
          cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &entry, 12000, cudaEnableDefault, &found));
      return reinterpret_cast<Call>(entry);
    }();
    if (write_value(stream_, reinterpret_cast<CUdeviceptr>(word), value, 0) != CUDA_SUCCESS)
      std::fprintf(stderr, "cuStreamWriteValue64 failed\n"), std::abort();
#endif
  }

 private:
  DOMAIN_GPU(Stream_t) stream_ = nullptr;
#else
  Stream() { CHECK_MPI(MPIX_Host_stream_create(&stream_)); }
  ~Stream() { CHECK_MPI(MPIX_Host_stream_destroy(&stream_)); }
  void synchronize() { CHECK_MPI(MPIX_Host_stream_synchronize(stream_)); }
  void copy_to_host_and_tell(void* to, const void* from, std::size_t bytes, std::uint64_t* word, std::uint64_t value) {
    std::memcpy(to, from, bytes);
    mpix::store_release(word, value);
  }

 private:
  MPIX_Host_stream stream_ = nullptr;
#endif
};

/// Whether a stream has come so far. Recorded again when it has.
class Event {
 public:
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

#if defined(__CUDACC__) || defined(__HIPCC__)
  Event() { DOMAIN_CHECK_GPU(DOMAIN_GPU(EventCreateWithFlags)(&event_, DOMAIN_GPU(EventDisableTiming))); }
  ~Event() { DOMAIN_CHECK_GPU(DOMAIN_GPU(EventDestroy)(event_)); }
  void record(Stream& stream) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(EventRecord)(event_, static_cast<DOMAIN_GPU(Stream_t)>(stream.handle())));
  }
  bool is_over() {
    const auto state = DOMAIN_GPU(EventQuery)(event_);
    if (state == DOMAIN_GPU(ErrorNotReady)) return false;
    DOMAIN_CHECK_GPU(state);
    return true;
  }

 private:
  DOMAIN_GPU(Event_t) event_ = nullptr;
#else
  Event() = default;
  void record(Stream& stream) {
    mpix::store_release(&over_, 0);
    const auto tell = [](void* word) { mpix::store_release(static_cast<std::uint64_t*>(word), 1); };
    CHECK_MPI(MPIX_Host_stream_launch(static_cast<MPIX_Host_stream>(stream.handle()), tell, &over_));
  }
  bool is_over() { return mpix::load_acquire(&over_) != 0; }

 private:
  std::uint64_t over_ = 0;
#endif
};

/// What was captured of a stream, to be launched there. Host streams cannot be captured.
class Captured {
 public:
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

#if defined(__CUDACC__) || defined(__HIPCC__)
  static constexpr bool is_possible = true;
  Captured(Stream& stream, const std::function<void()>& enqueue)
      : stream_(static_cast<DOMAIN_GPU(Stream_t)>(stream.handle())) {
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamBeginCapture)(stream_, DOMAIN_GPU(StreamCaptureModeThreadLocal)));
    enqueue();
    DOMAIN_GPU(Graph_t) graph = nullptr;
    DOMAIN_CHECK_GPU(DOMAIN_GPU(StreamEndCapture)(stream_, &graph));
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphInstantiateWithFlags)(&executable_, graph, 0));
    DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphDestroy)(graph));
  }
  ~Captured() { DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphExecDestroy)(executable_)); }
  void launch() { DOMAIN_CHECK_GPU(DOMAIN_GPU(GraphLaunch)(executable_, stream_)); }

 private:
  DOMAIN_GPU(Stream_t) stream_;
  DOMAIN_GPU(GraphExec_t) executable_ = nullptr;
#else
  static constexpr bool is_possible = false;
  Captured(Stream&, const std::function<void()>&) {}
  void launch() {}
#endif
};

}  // namespace support
