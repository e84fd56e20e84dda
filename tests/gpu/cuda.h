// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "support/device.h"
#include "support/epochs.h"
#include "support/gpu_names.h"

/// CUDA for the tests that are about it: what Stream and Device of tests/support have no names for.
namespace test {

#define NEEDS_CUDA() NEEDS(std::string(device().name()) == "cuda", "a test of the CUDA device")

inline cudaStream_t cuda(void* stream) { return static_cast<cudaStream_t>(stream); }

/// What `body` enqueues in `stream`, captured: launched as often as one likes.
class Graph {
 public:
  Graph(void* stream, cudaStreamCaptureMode mode, const std::function<void()>& body) {
    const std::uint64_t checks_before = device().captured_checks();
    CHECK_GPU(cudaStreamBeginCapture(cuda(stream), mode));
    body();
    checks_ = device().captured_checks() - checks_before;
    cudaGraph_t graph = nullptr;
    CHECK_GPU(cudaStreamEndCapture(cuda(stream), &graph));
    CHECK_GPU(cudaGraphInstantiate(&executable_, graph, 0));
    CHECK_GPU(cudaGraphDestroy(graph));
  }
  ~Graph() { (void)cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(void* stream) {
    CHECK_GPU(cudaGraphLaunch(executable_, cuda(stream)));
    device().expect_replays(checks_, 1);
  }

 private:
  std::uint64_t checks_ = 0;
  cudaGraphExec_t executable_ = nullptr;
};

/// The number of the iteration that runs, in memory of the device: the kernels of an iteration count it, and
/// take their data from it.
class Iteration {
 public:
  const std::uint64_t* number() const { return buffer_.as<std::uint64_t>(); }
  void next(void* stream) { device().count(stream, buffer_.as<std::uint64_t>()); }
  std::uint64_t reached() const { return contents<std::uint64_t>(buffer_.data(), 1)[0]; }

 private:
  Buffer buffer_{sizeof(std::uint64_t)};
};

/// What ends the loop of a graph's WHILE node: a kernel, the last of the node's body.
void continue_while_below(cudaStream_t stream, cudaGraphConditionalHandle handle, const std::uint64_t* number,
                          std::uint64_t end);

/// What `body` enqueues in `stream`, as the body of a WHILE node: one launch runs it again and again, until `number`,
/// which it counts, has reached `end`; once at least.
class Loop {
 public:
  Loop(void* stream, const std::uint64_t* number, std::uint64_t end, const std::function<void()>& body) {
    CHECK_GPU(cudaGraphCreate(&graph_, 0));
    cudaGraphConditionalHandle handle;
    CHECK_GPU(cudaGraphConditionalHandleCreate(&handle, graph_, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams parameters{};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = handle;
    parameters.conditional.type = cudaGraphCondTypeWhile;
    parameters.conditional.size = 1;
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    CHECK_GPU(cudaGraphAddNode(&node, graph_, nullptr, nullptr, 0, &parameters));
#else
    CHECK_GPU(cudaGraphAddNode(&node, graph_, nullptr, 0, &parameters));
#endif
    const std::uint64_t checks_before = device().captured_checks();
    CHECK_GPU(cudaStreamBeginCaptureToGraph(cuda(stream), parameters.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                            cudaStreamCaptureModeThreadLocal));
    body();
    continue_while_below(cuda(stream), handle, number, end);
    checks_ = device().captured_checks() - checks_before;
    cudaGraph_t captured;  // the body again
    CHECK_GPU(cudaStreamEndCapture(cuda(stream), &captured));
    CHECK_GPU(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~Loop() {
    (void)cudaGraphExecDestroy(executable_);
    (void)cudaGraphDestroy(graph_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// `iterations`: that there will be.
  void launch(void* stream, std::uint64_t iterations) {
    CHECK_GPU(cudaGraphLaunch(executable_, cuda(stream)));
    device().expect_replays(checks_, iterations);
  }

 private:
  std::uint64_t checks_ = 0;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace test
