// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "window.h"

#include "mpi_check.h"

namespace faces {

Window::Window(Device& device, long count, WindowMemory memory, const char* memory_kind) {
  const MPI_Aint bytes = static_cast<MPI_Aint>(count) * static_cast<MPI_Aint>(sizeof(double));
  const int unit = static_cast<int>(sizeof(double));
  if (memory == WindowMemory::create) {
    own_memory_.emplace(device, count);
    data_ = own_memory_->data();
    FACES_MPI(MPI_Win_create(data_, bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
  } else {
    MPI_Info info = MPI_INFO_NULL;
    if (memory_kind != nullptr) {
      FACES_MPI(MPI_Info_create(&info));
      FACES_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", memory_kind));
    }
    FACES_MPI(MPI_Win_allocate(bytes, unit, info, MPI_COMM_WORLD, &data_, &window_));
    if (info != MPI_INFO_NULL) FACES_MPI(MPI_Info_free(&info));
  }
  FACES_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
}

Window::~Window() {
  FACES_MPI(MPI_Win_free(&window_));
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
