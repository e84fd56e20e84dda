// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <list>
#include <optional>

#include "device/device.h"
#include "device/gpu/check.h"

namespace mpix {
inline namespace GPU_NAMESPACE {

/// The graph of one kernel, ready to be launched: what costs the CPU least, where the same launch comes often.
class PreparedKernel {
 public:
  PreparedKernel(const void* kernel, dim3 grid, unsigned threads, void* argument, gpuStream_t stream) {
    const OutsideCapture outside;
    void* arguments[] = {argument};
    gpuKernelNodeParams node{};
    node.func = const_cast<void*>(kernel);
    node.gridDim = grid;
    node.blockDim = dim3(threads);
    node.kernelParams = arguments;
    gpuGraph_t graph = nullptr;
    MPIX_CHECK_GPU(gpuGraphCreate(&graph, 0));
    gpuGraphNode_t added;
    gpuError_t error = gpuGraphAddKernelNode(&added, graph, nullptr, 0, &node);
    if (error == gpuSuccess) error = gpu_give_priority_of(stream, added);
    if (error == gpuSuccess) error = gpu_instantiate(&executable_, graph);
    (void)gpuGraphDestroy(graph);
    MPIX_CHECK_GPU(error);
  }
  /// What is launched runs to its end all the same.
  ~PreparedKernel() {
    if (executable_) (void)gpuGraphExecDestroy(executable_);
  }
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;

  gpuError_t launch(gpuStream_t stream) const { return gpuGraphLaunch(executable_, stream); }

 private:
  gpuGraphExec_t executable_ = nullptr;
};

/// A window's last few different launches. A launch is known by its call, its stream and its plans; the plans are kept
/// alive here, so that an address stands for one plan.
class PreparedKernels {
 public:
  struct Entry {
    Call call;
    gpuStream_t stream;
    Launch::Keep keep;
    std::uint32_t post_count;
    unsigned uses;
    bool failed;  ///< the driver cannot
    std::optional<PreparedKernel> kernel;

    bool is(const Launch& launch, gpuStream_t its_stream) const {
      return call == launch.call && stream == its_stream && keep == launch.keep &&
             post_count == launch.program.post_count;
    }
    /// To prepare costs as much as many launches: not for what never comes again.
    bool comes_often() const { return uses > 2; }
  };

  Entry& of(const Launch& launch, gpuStream_t stream) {
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!at->is(launch, stream)) continue;
      if (at != entries_.begin()) entries_.splice(entries_.begin(), entries_, at);
      ++entries_.front().uses;
      return entries_.front();
    }
    if (entries_.size() == capacity) entries_.pop_back();
    entries_.emplace_front();
    Entry& entry = entries_.front();
    entry.call = launch.call;
    entry.stream = stream;
    entry.keep = launch.keep;
    entry.post_count = launch.program.post_count;
    entry.uses = 1;
    entry.failed = false;
    return entry;
  }

 private:
  static constexpr std::size_t capacity = 16;
  std::list<Entry> entries_;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
