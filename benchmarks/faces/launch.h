// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "../device/device.h"
#include "kernels.h"
#include "reference.h"
#include "surface_kernel.h"

namespace faces {

using bench::Device;
using bench::DeviceBuffer;

/// The kernels, compiled for a GPU: a block for each row, a thread for each point.
class GpuKernels {
 public:
  virtual ~GpuKernels() = default;
  virtual void launch(const Initialize& body, void* stream) const = 0;
  virtual void launch(const Fill& body, void* stream) const = 0;
  virtual void launch(const Pack& body, void* stream) const = 0;
  virtual void launch(const SumInside& body, void* stream) const = 0;
  virtual void launch(const SumSurface& body, void* stream) const = 0;
  virtual void launch(const CountWrong& body, void* stream) const = 0;
};

const GpuKernels& cuda_kernels();
const GpuKernels& hip_kernels();

inline const GpuKernels& kernels_for(bench::Vendor vendor) {
  return vendor == bench::Vendor::cuda ? cuda_kernels() : hip_kernels();
}

template <class Body>
class Kernel final : public bench::Launchable {
 public:
  explicit Kernel(const Body& body) : body_(body) {}

  void run_on_host() const override {
    const Body body = body_;  // a local copy: stores through its pointers cannot change it
    const int rows = body.rows();
    for (int r = 0; r < rows; ++r) {
      const auto row = body.row(r);
      for (int p = 0; p < row.length; ++p) body.point(row, p);
    }
  }

  void launch_on_gpu(bench::Vendor vendor, void* stream) const override {
    kernels_for(vendor).launch(body_, stream);
  }

 private:
  Body body_;
};

}  // namespace faces
