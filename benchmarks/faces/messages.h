// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <vector>

#include "field.h"

namespace faces {

/// Doubles of the CPU's memory that the device copies at full speed.
class HostBuffer {
 public:
  HostBuffer(Device& device, long count);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  double* data() const { return data_; }

 private:
  Device& device_;
  double* data_;
};

/// Copies messages between the device and the CPU's memory, for an MPI that cannot reach the device's.
class Staging {
 public:
  /// `received`: where kernels expect the messages; `received_by_mpi`: where MPI receives them.
  Staging(Field& field, double* received, double* received_by_mpi);

  double* send() const { return send_.data(); }  ///< of geometry().buffer_size doubles, for MPI

  // Enqueued on the device's stream.
  void copy_out();  ///< from the field's send buffer to send()
  void copy_in();   ///< from what MPI has received to what kernels read

  void poison();  ///< NaN in the CPU's memory

 private:
  /// Messages that lie side by side, or almost: a copy of its own costs more than a small gap.
  struct Piece {
    std::size_t first, count;
  };
  static constexpr long small_gap = 8192;
  static std::vector<Piece> pieces_of(const Geometry& geometry);

  Device& device_;
  const std::size_t size_;
  const std::vector<Piece> pieces_;
  const double* const packed_;
  double* const received_;
  double* const received_by_mpi_;
  HostBuffer send_;
};

}  // namespace faces
