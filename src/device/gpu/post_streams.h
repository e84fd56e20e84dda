// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/gpu/check.h"
#include "device/gpu/graph_keeper.h"
#include "device/gpu/launcher.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// An event.
class GpuPoint final : public StreamPoint {
 public:
  explicit GpuPoint(int device) : device_(device) {
    const OwnCalls own(device);
    MPIX_CHECK_GPU(gpuEventCreateWithFlags(&event_, gpuEventDisableTiming));
  }
  ~GpuPoint() override { (void)gpuEventDestroy(event_); }
  GpuPoint(const GpuPoint&) = delete;
  GpuPoint& operator=(const GpuPoint&) = delete;

  void set(Stream stream) override {
    DeviceScope scope(device_);  // of which the null stream is
    MPIX_CHECK_GPU(gpuEventRecord(event_, static_cast<gpuStream_t>(stream)));
  }
  bool passed() noexcept override {
    try {
      const OwnCalls own(device_);
      const gpuError_t error = gpuEventQuery(event_);
      if (error != gpuSuccess) (void)gpuGetLastError();
      return error != gpuErrorNotReady;  // after any other nothing comes to pass on this GPU any more
    } catch (const Error&) {
      return true;  // likewise, as the process ends
    }
  }
  gpuEvent_t event() const { return event_; }

 private:
  const int device_;
  gpuEvent_t event_ = nullptr;
};

/// Streams of the library's own. Raises have one, for they wait for nothing. A launch behind a point has one to itself:
/// behind another's point it might wait for what waits for it.
class GpuPostStreams final : public PostStreams {
 public:
  GpuPostStreams(int device, Launcher& launcher, GraphKeeper& keeper)
      : device_(device), launcher_(launcher), keeper_(keeper), raised_(device) {
    raises_ = new_stream();
  }
  // What is left of the streams goes with the process: to destroy one may wait.

  std::shared_ptr<StreamPoint> new_point() override { return std::make_shared<GpuPoint>(device_); }

  void raise(const std::vector<PostRaise>& raises) override {
    const OwnCalls own(device_);
    std::lock_guard<std::mutex> hold(mutex_);
    for (std::size_t first = 0; first < raises.size(); first += NearRaises::most) {
      NearRaises near{};
      near.count = static_cast<std::uint32_t>(std::min<std::size_t>(raises.size() - first, NearRaises::most));
      for (std::uint32_t i = 0; i < near.count; ++i)
        near.raises[i] = {&raises[first + i].there->posted, raises[first + i].epochs};
      Launcher::raise(raises_, near);
    }
    raised_.set(raises_);
  }
  bool have_raised() noexcept override {
    std::lock_guard<std::mutex> hold(mutex_);
    return raised_.passed();
  }

  std::shared_ptr<StreamPoint> launch_behind(const std::shared_ptr<StreamPoint>& point, Launch&& launch) override {
    const OwnCalls own(device_);
    std::lock_guard<std::mutex> hold(mutex_);
    auto aside = std::find_if(asides_.begin(), asides_.end(),
                              [](const Aside& known) { return !known.end || known.end->passed(); });
    if (aside == asides_.end()) aside = asides_.insert(aside, {new_stream(), nullptr});
    auto end = std::make_shared<GpuPoint>(device_);
    MPIX_CHECK_GPU(gpu_wait_for_event(aside->stream, static_cast<const GpuPoint&>(*point).event(), false));
    launcher_.launch(aside->stream, launch);
    end->set(aside->stream);
    aside->end = end;
    return end;
  }

  void hold_back(Stream stream, bool captured, const std::shared_ptr<StreamPoint>& point) override {
    DeviceScope scope(device_);
    const auto on = static_cast<gpuStream_t>(stream);
    if (captured) keeper_.keep(on, point);
    MPIX_CHECK_GPU(gpu_wait_for_event(on, static_cast<const GpuPoint&>(*point).event(), captured));
  }

 private:
  struct Aside {
    gpuStream_t stream;
    std::shared_ptr<StreamPoint> end;
  };

  gpuStream_t new_stream() const {
    const OwnCalls own(device_);
    return new_foremost_stream();
  }

  const int device_;
  Launcher& launcher_;
  GraphKeeper& keeper_;
  std::mutex mutex_;  ///< guards what follows
  gpuStream_t raises_ = nullptr;
  GpuPoint raised_;
  std::list<Aside> asides_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
