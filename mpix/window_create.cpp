// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "window_create.h"

#include <exception>

#include "base/log.h"
#include "info_keys.h"

namespace mpix {
NewWindow told_by(MPI_Info info, NewWindow created) {
  const std::string lazy = info_value(info, lazy_post_key);
  created.lazy_post = lazy == "true";
  created.name = name_in(info);
  try {
    warn_of_unknown_keys(created.call, info, {name_key, lazy_post_key});
  } catch (const std::exception& error) {  // the window is there: nothing may fail any more
    log(LogLevel::info, error.what());
  }
  if (lazy != "" && lazy != "true" && lazy != "false")
    log(LogLevel::warn,
        std::string(created.call) + ": info " + lazy_post_key + "=" + lazy + ": expected true or false");
  return created;
}

}  // namespace mpix

using mpix::NewWindow;

MPIX_INTERPOSED int MPI_Win_create(void* base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                                   MPI_Win* win) {
  return mpix::create_window(
      NewWindow{"MPI_Win_create", MPI_WIN_FLAVOR_CREATE, base, size, disp_unit}, info, comm, win,
      [=](void* over, MPI_Aint bytes) { return PMPI_Win_create(over, bytes, disp_unit, info, comm, win); });
}

MPIX_INTERPOSED int MPI_Win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                                     MPI_Win* win) {
  return mpix::allocate_window(
      NewWindow{"MPI_Win_allocate", MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, disp_unit}, info, comm, baseptr, win,
      [=] { return PMPI_Win_allocate(size, disp_unit, info, comm, baseptr, win); },
      [=](void* base, MPI_Aint bytes) { return PMPI_Win_create(base, bytes, disp_unit, info, comm, win); });
}

MPIX_INTERPOSED int MPI_Win_allocate_shared(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                                            MPI_Win* win) {
  const int made = PMPI_Win_allocate_shared(size, disp_unit, info, comm, baseptr, win);
  if (made != MPI_SUCCESS) return made;
  return mpix::adopt(*win, comm,
                     mpix::told_by(info, NewWindow{"MPI_Win_allocate_shared", MPI_WIN_FLAVOR_SHARED,
                                                   *static_cast<void**>(baseptr), size, disp_unit}));
}

MPIX_INTERPOSED int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  const int made = PMPI_Win_create_dynamic(info, comm, win);
  if (made != MPI_SUCCESS) return made;
  return mpix::adopt(*win, comm,
                     mpix::told_by(info, NewWindow{"MPI_Win_create_dynamic", MPI_WIN_FLAVOR_DYNAMIC, nullptr, 0, 1}));
}

#ifdef HAVE_MPI_LARGE_COUNT

MPIX_INTERPOSED int MPI_Win_create_c(void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
                                     MPI_Win* win) {
  return mpix::create_window(
      NewWindow{"MPI_Win_create_c", MPI_WIN_FLAVOR_CREATE, base, size, disp_unit}, info, comm, win,
      [=](void* over, MPI_Aint bytes) { return PMPI_Win_create_c(over, bytes, disp_unit, info, comm, win); });
}

MPIX_INTERPOSED int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                                       MPI_Win* win) {
  return mpix::allocate_window(
      NewWindow{"MPI_Win_allocate_c", MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, disp_unit}, info, comm, baseptr, win,
      [=] { return PMPI_Win_allocate_c(size, disp_unit, info, comm, baseptr, win); },
      [=](void* base, MPI_Aint bytes) { return PMPI_Win_create_c(base, bytes, disp_unit, info, comm, win); });
}

MPIX_INTERPOSED int MPI_Win_allocate_shared_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
                                              void* baseptr, MPI_Win* win) {
  const int made = PMPI_Win_allocate_shared_c(size, disp_unit, info, comm, baseptr, win);
  if (made != MPI_SUCCESS) return made;
  return mpix::adopt(*win, comm,
                     mpix::told_by(info, NewWindow{"MPI_Win_allocate_shared_c", MPI_WIN_FLAVOR_SHARED,
                                                   *static_cast<void**>(baseptr), size, disp_unit}));
}

#endif
