// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>

#include "memory.h"

namespace peers {

/// Epochs captured in a graph. `failure` is not empty where CUDA refused.
class EpochGraph {
 public:
  EpochGraph(int epochs, const std::function<void()>& enqueue_epoch, cudaStream_t stream);
  ~EpochGraph();
  EpochGraph(const EpochGraph&) = delete;
  EpochGraph& operator=(const EpochGraph&) = delete;

  void launch(int times);
  const std::string& failure() const { return failure_; }

 private:
  const cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
  std::string failure_;
};

/// Captured epochs as the body of a WHILE node: any number of epochs in one launch. How often the body is run is
/// read from memory of the GPU at its start. Each run of the body costs something, whatever is in it.
class LoopGraph {
 public:
  LoopGraph(int epochs_in_body, const std::function<void()>& enqueue_epoch, cudaStream_t stream);
  ~LoopGraph();
  LoopGraph(const LoopGraph&) = delete;
  LoopGraph& operator=(const LoopGraph&) = delete;

  void set_runs(unsigned runs);
  void launch();
  const std::string& failure() const { return failure_; }

 private:
  cudaError_t build(int epochs_in_body, const std::function<void()>& enqueue_epoch);

  const cudaStream_t stream_;
  DeviceMemory total_, left_;
  cudaGraphExec_t executable_ = nullptr;
  std::string failure_;
};

}  // namespace peers
