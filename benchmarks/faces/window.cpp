// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "window.h"

#include <cstdio>

#include "mpi_check.h"

namespace faces {

namespace {

std::size_t bytes_of(long count) { return static_cast<std::size_t>(count) * sizeof(double); }

}  // namespace

Window::Window(Device& device, long count, WindowMemory memory, MPI_Info info) {
  const MPI_Aint bytes = static_cast<MPI_Aint>(bytes_of(count));
  const int unit = static_cast<int>(sizeof(double));
  if (memory == WindowMemory::create) {
    own_memory_.emplace(device, count);
    data_ = own_memory_->data();
    FACES_MPI(MPI_Win_create(data_, bytes, unit, info, MPI_COMM_WORLD, &window_));
  } else {
    FACES_MPI(MPI_Win_allocate(bytes, unit, info, MPI_COMM_WORLD, &data_, &window_));
  }
  FACES_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
}

Window::~Window() {
  if (pinned_by_ != nullptr) pinned_by_->unpin(data_);
  FACES_MPI(MPI_Win_free(&window_));
}

void Window::pin(Device& device, long count) {
  if (device.pin(data_, bytes_of(count)))
    pinned_by_ = &device;
  else
    std::fputs("faces: the window's memory cannot be pinned; copies to it and from it will be slower\n", stderr);
}

Group::Group(const std::vector<int>& ranks) {
  MPI_Group world = MPI_GROUP_NULL;
  FACES_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  FACES_MPI(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group_));
  FACES_MPI(MPI_Group_free(&world));
}

Group::~Group() {
  if (group_ != MPI_GROUP_EMPTY) FACES_MPI(MPI_Group_free(&group_));
}

}  // namespace faces
