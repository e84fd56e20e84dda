// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "device/gpu/check.h"
#include "device/gpu/prepared_kernels.h"
#include "device/launch_trials.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// Events of a stream. What goes wrong makes a time unknown, and no more.
class GpuMarks final : public StreamMarks {
 public:
  ~GpuMarks() override { clear(); }

  void set(std::size_t mark, Stream stream) noexcept override {
    const OutsideCapture outside;
    gpuEvent_t& event = events_.at(mark);
    const bool made = event || gpuEventCreate(&event) == gpuSuccess;
    if (made && gpuEventRecord(event, static_cast<gpuStream_t>(stream)) == gpuSuccess) return;
    (void)gpuGetLastError();
    if (made) destroy(event);
    event = nullptr;
  }
  bool passed(std::size_t mark) noexcept override {
    const OutsideCapture outside;
    const gpuEvent_t event = events_.at(mark);
    const gpuError_t error = event ? gpuEventQuery(event) : gpuSuccess;
    if (error != gpuSuccess) (void)gpuGetLastError();
    return error != gpuErrorNotReady;
  }
  double between(std::size_t first, std::size_t second) noexcept override {
    const gpuEvent_t begin = events_.at(first), end = events_.at(second);
    float milliseconds = -1;
    if (!begin || !end || gpuEventElapsedTime(&milliseconds, begin, end) == gpuSuccess)
      return 1000 * static_cast<double>(milliseconds);
    (void)gpuGetLastError();
    return -1;
  }
  void clear() noexcept override {
    for (gpuEvent_t& event : events_)
      if (event) destroy(event);
  }

 private:
  static void destroy(gpuEvent_t& event) noexcept {
    (void)gpuEventDestroy(event);
    event = nullptr;
  }
  std::array<gpuEvent_t, 2 * LaunchTrials::segments> events_{};
};

/// A captured post that the stream goes on beside. Between two kernels of the program a post would hold up the second,
/// which has no need of it: to start and to end takes it 1 to 1.6 µs of 7. The window's next call in this stream and
/// capture is behind it again, so that a kernel that waits for the peer's post is never in front of this rank's own,
/// where branches of a graph share a queue; and so is the next post in any stream, so that they stay in order. Without
/// such a call the graph ends with the post. A call in another stream is not behind it: that stream may be what the
/// post's own one waits for. Nor is a kernel of the program or of another library, which may wait for peers as well: so
/// there have to be queues enough for branches to run side by side (CUDA_DEVICE_MAX_CONNECTIONS).
struct PostBeside {
  gpuStream_t stream = nullptr;
  GpuCapture capture;             ///< as it was
  gpuGraphNode_t node = nullptr;  ///< null: none
};

/// What is remembered of a window's launches.
struct WindowLaunches final : LaunchMemory {
  WindowLaunches() : trials(std::make_unique<GpuMarks>()) {}
  PreparedKernels prepared;
  LaunchTrials trials;
  PostBeside post;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
