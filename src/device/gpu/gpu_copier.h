// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/copier.h"
#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// By the copy engines, in a stream of its own. An event stands for all copies that were started since the one before.
class GpuCopier final : public Copier {
 public:
  explicit GpuCopier(int device) : device_(device) {
    const OwnCalls own(device_);
    stream_ = new_foremost_stream();
    for (Mark& mark : marks_) MPIX_CHECK_GPU(gpuEventCreateWithFlags(&mark.event, gpuEventDisableTiming));
  }
  // The stream goes with the process: to destroy it may wait.
  ~GpuCopier() override {
    for (const Mark& mark : marks_) (void)gpuEventDestroy(mark.event);
  }
  GpuCopier(const GpuCopier&) = delete;
  GpuCopier& operator=(const GpuCopier&) = delete;

  std::uint64_t start(void* to, const void* from, std::size_t bytes) override {
    const OwnCalls own(device_);
    if (bytes > 0) MPIX_CHECK_GPU(gpuMemcpyAsync(to, from, bytes, gpuMemcpyDefault, stream_));
    ++started_;
    return started_;
  }

  void mark() override {
    if (marked_ == started_ || begun_ - ended_ == marks_.size()) return;
    const OwnCalls own(device_);
    record();
  }

  std::uint64_t finished() override {
    if (finished_ == started_) return finished_;
    const OwnCalls own(device_);
    while (begun_ != ended_) {
      const Mark& mark = marks_[ended_ % marks_.size()];
      const gpuError_t error = gpuEventQuery(mark.event);
      if (error == gpuErrorNotReady) {
        (void)gpuGetLastError();
        break;
      }
      MPIX_CHECK_GPU(error);
      finished_ = mark.number;
      ++ended_;
    }
    if (marked_ != started_ && begun_ - ended_ < marks_.size()) record();
    return finished_;
  }

 private:
  void record() {
    Mark& mark = marks_[begun_ % marks_.size()];
    MPIX_CHECK_GPU(gpuEventRecord(mark.event, stream_));
    mark.number = marked_ = started_;
    ++begun_;
  }

  struct Mark {
    gpuEvent_t event = nullptr;
    std::uint64_t number = 0;
  };
  const int device_;
  gpuStream_t stream_ = nullptr;
  std::array<Mark, 8> marks_;
  std::uint64_t started_ = 0, marked_ = 0, finished_ = 0;
  std::uint64_t begun_ = 0, ended_ = 0;  ///< marks
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
