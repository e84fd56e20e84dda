// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>

#include "device_memory.h"
#include "mpi_library.h"

namespace mpix {

/// What a call that creates a window was told, and what MPI gave it.
struct NewWindow {
  const char* call;
  int flavour;
  void* base;
  MPI_Aint bytes;
  MPI_Aint displacement_unit;
  void* device_memory = nullptr;  ///< that the window is to own; null: none
  bool lazy_post = false;         ///< the info says so
  std::string name{};             ///< likewise
  bool hidden = false;            ///< MPI's window is over nothing: see hide_from_mpi
};

/// Whether MPI must not see this memory, because the CPU cannot reach it and MPI is not GPU-aware, or because it
/// is MPICH and processes cannot map it (a stream-ordered pool), which makes MPICH 5.0.1 end the program. Its window is
/// then made over nothing; base, size and displacement unit are ours to know, ordinary RMA calls on it an error.
bool hide_from_mpi(const void* base, MPI_Aint bytes);

/// With what the info says.
NewWindow told_by(MPI_Info info, NewWindow created);

/// Collective. Whether the window over nothing is to be one that MPI allocates: Open MPI with its presets makes none
/// over memory of the program where there is no network with remote writes (MPI_ERR_WIN), but allocates them on one
/// node. Only where all ranks hide their memory.
bool allocate_hidden(MPI_Comm comm, bool hidden);

/// Collective: give a window that MPI has just created its state. Also succeeds where stream epochs
/// turn out not to be possible on the window; it then stays an ordinary one.
int adopt(MPI_Win win, MPI_Comm comm, const NewWindow& created);

/// Collective: memory of the device on every rank, or an error on every rank.
int allocate_on_all(const char* call, MPI_Aint bytes, MPI_Comm comm, void** base);

template <class CreateOver>
int over_what_mpi_sees(const NewWindow& created, void* base, MPI_Info info, MPI_Comm comm, MPI_Win* win,
                       CreateOver create_over) {
  void* nothing = nullptr;
  if (allocate_hidden(comm, created.hidden))
    return PMPI_Win_allocate(0, static_cast<int>(created.displacement_unit), info, comm, &nothing, win);
  return created.hidden ? create_over(nullptr, 0) : create_over(base, created.bytes);
}

/// MPI_Win_create: MPI gets the memory (`create_over`), or, where it must not see it, nothing.
template <class CreateOver>
int create_window(NewWindow created, MPI_Info info, MPI_Comm comm, MPI_Win* win, CreateOver create_over) {
  created.hidden = hide_from_mpi(created.base, created.bytes);
  const int made = over_what_mpi_sees(created, created.base, info, comm, win, create_over);
  return made == MPI_SUCCESS ? adopt(*win, comm, told_by(info, created)) : made;
}

/// MPI_Win_allocate: MPI allocates (`allocate`), or, where the info asks for memory of the device,
/// we do, and MPI gets a window over it (`create_over`). As MPI demands of all hints that change an
/// allocation, every rank asks for the same kind.
template <class Allocate, class CreateOver>
int allocate_window(NewWindow created, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win, Allocate allocate,
                    CreateOver create_over) {
  void** const base = static_cast<void**>(baseptr);
  if (wants_device_memory(info)) {
    void* memory = nullptr;
    const int allocated = allocate_on_all(created.call, created.bytes, comm, &memory);
    if (allocated != MPI_SUCCESS) return allocated;
    created.hidden = hide_from_mpi(memory, created.bytes);
    const int made = over_what_mpi_sees(created, memory, info, comm, win, create_over);
    if (made != MPI_SUCCESS) {
      release_device_memory(memory);
      return made;
    }
    *base = memory;
    created.device_memory = memory;
  } else {
    const int made = allocate();
    if (made != MPI_SUCCESS) return made;
  }
  created.base = *base;
  return adopt(*win, comm, told_by(info, created));
}

}  // namespace mpix
