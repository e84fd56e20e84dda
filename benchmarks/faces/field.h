// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "geometry.h"
#include "launch.h"

namespace faces {

/// The values at all element points of one process, and room for the messages that it sends.
class Field {
 public:
  Field(const Problem& problem, const Geometry& geometry, Device& device);

  /// Enqueue: give every point its initial value.
  void initialize() { device_.launch(initialize_); }

  const Problem& problem() const { return problem_; }
  const Geometry& geometry() const { return geometry_; }
  Device& device() { return device_; }
  double* values() const { return values_.data(); }
  double* send() const { return send_.data(); }

 private:
  const Problem& problem_;
  const Geometry& geometry_;
  Device& device_;
  DeviceBuffer values_;
  DeviceBuffer send_;
  Kernel<Initialize> initialize_;
};

/// The kernels of a share, prepared: enqueueing one passes a pointer. Step 0 starts a run.
class ShareKernels {
 public:
  /// `received`: where messages arrive, geometry().buffer_size doubles.
  ShareKernels(Field& field, double* received);

  void poison_buffers();       ///< NaN in all messages: what is used before it arrives will show
  void pack();                 ///< field to messages
  void sum_inside(int step);   ///< needs no message; nothing when compute kernels are left out
  void sum_surface(int step);  ///< field and received messages to field

 private:
  ShareKernels(Field& field, double* received, Device& device, const Mesh& mesh);

  Field& field_;
  Kernel<Fill> poison_send_, poison_received_;
  Kernel<Pack> pack_;
  Kernel<SumInside> inside_, inside_rescale_;
  Kernel<SumSurface> surface_, surface_rescale_;
};

}  // namespace faces
