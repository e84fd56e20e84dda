// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "errors.h"
#include "window_state.h"

MPIX_INTERPOSED int MPI_Win_set_name(MPI_Win win, const char* win_name) {
  const int named = PMPI_Win_set_name(win, win_name);
  if (named != MPI_SUCCESS) return named;
  mpix::WinState* state = mpix::find_state(win);
  if (!state || !state->window) return named;
  return mpix::guarded(mpix::Caller::on_window("MPI_Win_set_name", win),
                       [&] { state->window->rename(mpix::name_of(win)); });
}

namespace mpix {
namespace {

/// The attributes of a window that MPI believes to be over nothing. Null: MPI knows it.
void* attribute_of_hidden(WinState& state, int key) {
  if (key == MPI_WIN_BASE) return state.base;
  if (key == MPI_WIN_SIZE) return &state.bytes;
  if (key == MPI_WIN_DISP_UNIT) return &state.displacement_unit;
  return nullptr;
}

}  // namespace
}  // namespace mpix

/// Where MPI_Win_allocate allocated through us, MPI itself knows the window as one over memory of
/// the program.
MPIX_INTERPOSED int MPI_Win_get_attr(MPI_Win win, int win_keyval, void* attribute_val, int* flag) {
  if (win_keyval == MPI_WIN_CREATE_FLAVOR && attribute_val && flag) {
    mpix::WinState* state = mpix::find_state(win);
    if (state && (state->device_memory || state->hidden)) {
      *static_cast<void**>(attribute_val) = &state->flavour;
      *flag = 1;
      return MPI_SUCCESS;
    }
  }
  if (mpix::WinState* state = mpix::find_state(win); state && state->hidden && attribute_val && flag) {
    if (void* value = mpix::attribute_of_hidden(*state, win_keyval)) {
      *static_cast<void**>(attribute_val) = value;
      *flag = 1;
      return MPI_SUCCESS;
    }
  }
  return PMPI_Win_get_attr(win, win_keyval, attribute_val, flag);
}
