// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "../device/gpu_names.h"
#include "launch.h"

/// Compiled once for each vendor: hence the unnamed namespace.
namespace faces {
namespace {

/// A multiple of every vendor's warp; most rows of the presets have fewer points.
constexpr int threads_per_row = 192;

template <class Body>
__global__ void __launch_bounds__(threads_per_row) run_rows(const GPU_ARGUMENT Body body) {
  __shared__ typename Body::Row row;
  if (threadIdx.x == 0) row = body.row(static_cast<int>(blockIdx.x));
  __syncthreads();
  for (int p = static_cast<int>(threadIdx.x); p < row.length; p += threads_per_row) body.point(row, p);
}

class VendorKernels final : public GpuKernels {
 public:
  void launch(const Initialize& body, void* stream) const override { run(body, stream); }
  void launch(const Fill& body, void* stream) const override { run(body, stream); }
  void launch(const Pack& body, void* stream) const override { run(body, stream); }
  void launch(const SumInside& body, void* stream) const override { run(body, stream); }
  void launch(const SumSurface& body, void* stream) const override { run(body, stream); }
  void launch(const CountWrong& body, void* stream) const override { run(body, stream); }

 private:
  template <class Body>
  static void run(const Body& body, void* stream) {
    const int rows = body.rows();
    if (rows == 0) return;
    run_rows<Body><<<dim3(static_cast<unsigned>(rows)), dim3(threads_per_row), 0, static_cast<gpuStream_t>(stream)>>>(
        body);
    CHECK_GPU(GPU(GetLastError)());
  }
};

}  // namespace
}  // namespace faces
