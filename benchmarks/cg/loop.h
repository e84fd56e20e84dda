// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <functional>

#include "benchmarks/dev/stream.h"
#include "kernels.h"

/// All iterations in one launch, of a graph whose WHILE node has some of them in its body. CUDA has that.
namespace cg {

/// Where the solve ends: behind so many iterations, or with so small an r . r.
struct End {
  std::uint64_t iterations;
  double rr;
};

#if defined(__CUDACC__)
/// The last kernel of the body.
struct GoOn {
  Vectors v;
  End end;
  cudaGraphConditionalHandle condition;
  MPIX_DEV_METHOD void operator()(int) const {
    const Scalars& s = *v.scalars;
    if (team::here().index == 0)
      cudaGraphSetConditional(condition, s.iteration < end.iterations && s.rr_next > end.rr ? 1 : 0);
  }
};

class Loop {
 public:
  Loop(launcher::Stream& stream, const Vectors& v, const End& end, const std::function<void()>& enqueue)
      : stream_(stream) {
    cudaGraph_t graph = nullptr;
    DOMAIN_CHECK_GPU(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle condition{};
    DOMAIN_CHECK_GPU(cudaGraphConditionalHandleCreate(&condition, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams parameters = {};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = condition;
    parameters.conditional.type = cudaGraphCondTypeWhile;
    parameters.conditional.size = 1;
    cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
    DOMAIN_CHECK_GPU(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
#else
    DOMAIN_CHECK_GPU(cudaGraphAddNode(&node, graph, nullptr, 0, &parameters));
#endif
    cudaGraph_t body = parameters.conditional.phGraph_out[0];
    DOMAIN_CHECK_GPU(
        cudaStreamBeginCaptureToGraph(stream.handle(), body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    enqueue();
    stream.run(GoOn{v, end, condition}, 1);
    DOMAIN_CHECK_GPU(cudaStreamEndCapture(stream.handle(), &body));  // the same
    DOMAIN_CHECK_GPU(cudaGraphInstantiate(&executable_, graph, 0));
    DOMAIN_CHECK_GPU(cudaGraphDestroy(graph));
  }
  ~Loop() { DOMAIN_CHECK_GPU(cudaGraphExecDestroy(executable_)); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void launch() { DOMAIN_CHECK_GPU(cudaGraphLaunch(executable_, stream_.handle())); }
  static constexpr bool is_there = true;

 private:
  launcher::Stream& stream_;
  cudaGraphExec_t executable_ = nullptr;
};
#else
class Loop {
 public:
  Loop(launcher::Stream&, const Vectors&, const End&, const std::function<void()>&) {}
  void launch() {}
  static constexpr bool is_there = false;
};
#endif

}  // namespace cg
