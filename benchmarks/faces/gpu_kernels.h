// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "support/gpu_names.h"  // first: kernels use what it includes

#include <algorithm>

#include "launch.h"

/// Compiled once for each vendor: hence the unnamed namespace.
namespace faces {
namespace {

constexpr int warp = 64;  // as wide as any vendor's
constexpr int most_threads = 256;

template <class Body>
__global__ void __launch_bounds__(most_threads) run_rows(const GPU_ARGUMENT Body body, const typename Body::Row* rows) {
  const typename Body::Row& row = rows[blockIdx.x];
  for (int p = static_cast<int>(threadIdx.x); p < row.length; p += static_cast<int>(blockDim.x)) body.point(row, p);
}

class VendorKernels final : public GpuKernels {
 public:
  void launch(const Initialize& body, const Rows<Initialize::Row>& rows, void* stream) const override {
    run(body, rows, stream);
  }
  void launch(const Fill& body, const Rows<Fill::Row>& rows, void* stream) const override { run(body, rows, stream); }
  void launch(const Pack& body, const Rows<Pack::Row>& rows, void* stream) const override { run(body, rows, stream); }
  void launch(const SumInside& body, const Rows<SumInside::Row>& rows, void* stream) const override {
    run(body, rows, stream);
  }
  void launch(const SumSurface& body, const Rows<SumSurface::Row>& rows, void* stream) const override {
    run(body, rows, stream);
  }
  void launch(const CountWrong& body, const Rows<CountWrong::Row>& rows, void* stream) const override {
    run(body, rows, stream);
  }

 private:
  template <class Body>
  static void run(const Body& body, const Rows<typename Body::Row>& rows, void* stream) {
    const int threads = std::min((rows.longest + warp - 1) / warp * warp, most_threads);
    run_rows<Body><<<dim3(static_cast<unsigned>(rows.count)), dim3(static_cast<unsigned>(threads)), 0,
                     static_cast<gpuStream_t>(stream)>>>(body, rows.row);
    CHECK_GPU(GPU(GetLastError)());
  }
};

}  // namespace
}  // namespace faces
