// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "graphs.h"

#include <cuda_runtime.h>

#include "kernels.h"

namespace peers {
namespace {

/// A text for an error that is no reason to end: a graph that CUDA does not take is a row less.
std::string text_of(cudaError_t error) {
  if (error == cudaSuccess) return "";
  (void)cudaGetLastError();
  return cudaGetErrorString(error);
}

}  // namespace

EpochGraph::EpochGraph(int epochs, const std::function<void()>& enqueue_epoch, cudaStream_t stream) : stream_(stream) {
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < epochs; ++i) enqueue_epoch();
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable_, graph, 0);
  failure_ = text_of(error);
  if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
  if (failure_.empty()) CHECK_CUDA(cudaGraphUpload(executable_, stream));
}

EpochGraph::~EpochGraph() {
  if (executable_) CHECK_CUDA(cudaGraphExecDestroy(executable_));
}

void EpochGraph::launch(int times) {
  for (int i = 0; i < times; ++i) CHECK_CUDA(cudaGraphLaunch(executable_, stream_));
}

LoopGraph::LoopGraph(int epochs_in_body, const std::function<void()>& enqueue_epoch, cudaStream_t stream)
    : stream_(stream), total_(sizeof(unsigned)), left_(sizeof(unsigned)) {
  failure_ = text_of(build(epochs_in_body, enqueue_epoch));
}

cudaError_t LoopGraph::build(int epochs_in_body, const std::function<void()>& enqueue_epoch) {
  auto* total = reinterpret_cast<unsigned*>(total_.get());
  auto* left = reinterpret_cast<unsigned*>(left_.get());
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle loop;
  CHECK_CUDA(cudaGraphConditionalHandleCreate(&loop, graph, 0, 0));

  // The node that sets how often, then the WHILE node after it.
  CHECK_CUDA(cudaStreamBeginCaptureToGraph(stream_, graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  launch_begin_loop(loop, total, left, stream_);
  CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
  cudaGraphNode_t begin = nullptr, repeat = nullptr;
  std::size_t nodes = 1;
  CHECK_CUDA(cudaGraphGetNodes(graph, &begin, &nodes));
  cudaGraphNodeParams parameters = {};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = loop;
  parameters.conditional.type = cudaGraphCondTypeWhile;
  parameters.conditional.size = 1;
  cudaError_t error = cudaGraphAddNode(&repeat, graph, &begin, nullptr, 1, &parameters);
  if (error == cudaSuccess) {
    cudaGraph_t body = parameters.conditional.phGraph_out[0];
    CHECK_CUDA(cudaStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < epochs_in_body; ++i) enqueue_epoch();
    launch_count_down(loop, left, stream_);
    error = cudaStreamEndCapture(stream_, &body);
  }
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable_, graph, 0);
  CHECK_CUDA(cudaGraphDestroy(graph));
  if (error == cudaSuccess) error = cudaGraphUpload(executable_, stream_);
  return error;
}

LoopGraph::~LoopGraph() {
  if (executable_) CHECK_CUDA(cudaGraphExecDestroy(executable_));
}

void LoopGraph::set_runs(unsigned runs) {
  CHECK_CUDA(cudaMemcpyAsync(total_.get(), &runs, sizeof runs, cudaMemcpyHostToDevice, stream_));
  CHECK_CUDA(cudaStreamSynchronize(stream_));
}

void LoopGraph::launch() { CHECK_CUDA(cudaGraphLaunch(executable_, stream_)); }

}  // namespace peers
