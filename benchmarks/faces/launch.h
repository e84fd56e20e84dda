// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <vector>

#include "../device/device.h"
#include "kernels.h"
#include "reference.h"

namespace faces {

using bench::Device;
using bench::DeviceBuffer;

/// In the device's memory.
template <class Row>
struct Rows {
  const Row* row;
  int count;
  int longest;  ///< points in a row
};

/// The kernels, compiled for a GPU: a block for each row, a thread for each point.
class GpuKernels {
 public:
  virtual ~GpuKernels() = default;
  virtual void launch(const Initialize& body, const Rows<Initialize::Row>& rows, void* stream) const = 0;
  virtual void launch(const Fill& body, const Rows<Fill::Row>& rows, void* stream) const = 0;
  virtual void launch(const Pack& body, const Rows<Pack::Row>& rows, void* stream) const = 0;
  virtual void launch(const SumInside& body, const Rows<SumInside::Row>& rows, void* stream) const = 0;
  virtual void launch(const SumSurface& body, const Rows<SumSurface::Row>& rows, void* stream) const = 0;
  virtual void launch(const CountWrong& body, const Rows<CountWrong::Row>& rows, void* stream) const = 0;
};

const GpuKernels& cuda_kernels();
const GpuKernels& hip_kernels();

inline const GpuKernels& kernels_for(support::Vendor vendor) {
  return vendor == support::Vendor::cuda ? cuda_kernels() : hip_kernels();
}

/// A kernel with its arguments and its rows.
template <class Body>
class Kernel final : public support::Launchable {
 public:
  using Row = typename Body::Row;

  Kernel(Device& device, const Body& body, const std::vector<Row>& rows)
      : body_(body),
        memory_(device, static_cast<long>(rows.size())),
        rows_{memory_.data(), static_cast<int>(rows.size()), 0} {
    for (const Row& row : rows) rows_.longest = std::max(rows_.longest, row.length);
    device.copy(memory_.data(), rows.data(), rows.size() * sizeof(Row));
    device.synchronize();
  }

  void run_on_host() const override {
    const Body body = body_;  // a local copy: stores through its pointers cannot change it
    for (int r = 0; r < rows_.count; ++r) {
      const Row& row = rows_.row[r];
      for (int p = 0; p < row.length; ++p) body.point(row, p);
    }
  }

  void launch_on_gpu(support::Vendor vendor, void* stream) const override {
    if (rows_.count > 0) kernels_for(vendor).launch(body_, rows_, stream);
  }

 private:
  Body body_;
  bench::DeviceArray<Row> memory_;
  Rows<Row> rows_;
};

}  // namespace faces
