// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "errors.h"
#include "info_keys.h"
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

/// What MPI does not know: where MPI_Win_allocate allocated through us, it takes the window for one over memory of the
/// program; and one that is hidden it believes to be over nothing. Null: MPI knows it.
void* attribute_of(WinState& state, int key) {
  if (key == MPI_WIN_CREATE_FLAVOR && (state.device_memory || state.hidden)) return &state.flavour;
  if (!state.hidden) return nullptr;
  if (key == MPI_WIN_BASE) return state.base;
  if (key == MPI_WIN_SIZE) return &state.bytes;
  if (key == MPI_WIN_DISP_UNIT) return &state.displacement_unit;
  return nullptr;
}

}  // namespace
}  // namespace mpix

MPIX_INTERPOSED int MPI_Win_get_attr(MPI_Win win, int win_keyval, void* attribute_val, int* flag) {
  mpix::WinState* const state = attribute_val && flag ? mpix::find_state(win) : nullptr;
  if (void* const value = state ? mpix::attribute_of(*state, win_keyval) : nullptr) {
    *static_cast<void**>(attribute_val) = value;
    *flag = 1;
    return MPI_SUCCESS;
  }
  return PMPI_Win_get_attr(win, win_keyval, attribute_val, flag);
}

MPIX_INTERPOSED int MPI_Win_get_info(MPI_Win win, MPI_Info* info_used) {
  const int got = PMPI_Win_get_info(win, info_used);
  if (got != MPI_SUCCESS) return got;
  const mpix::WinState* const state = mpix::find_state(win);
  return state && state->lazy_post ? PMPI_Info_set(*info_used, mpix::lazy_post_key, "true") : got;
}
