// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <optional>
#include <vector>

#include "exchange.h"

namespace faces {

/// An MPI window of doubles for the messages of the neighbours. Displacements count doubles.
class Window {
 public:
  Window(Device& device, long count, WindowMemory memory, MPI_Info info);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// Memory of the CPU: let the device copy it at full speed.
  void pin(Device& device, long count);

  MPI_Win handle() const { return window_; }
  double* data() const { return data_; }

 private:
  std::optional<DeviceBuffer> own_memory_;
  Device* pinned_by_ = nullptr;
  double* data_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// The group of some ranks of MPI_COMM_WORLD.
class Group {
 public:
  explicit Group(const std::vector<int>& ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  MPI_Group handle() const { return group_; }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

}  // namespace faces
