// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "errors.h"
#include "group_ranks.h"
#include "mpi_library.h"
#include "mpix.h"
#include "window_state.h"

namespace mpix {
namespace {

/// A call that opens or closes an epoch.
template <class Body>
int changing_epochs(const char* call, MPI_Win win, Body body) {
  return guarded(Caller::on_window(call, win), [&] {
    WinState& state = state_of(win);
    Window& window = stream_window(state);
    try {
      body(state, window);
    } catch (...) {
      state.follow_access_epoch();
      throw;
    }
    state.follow_access_epoch();
  });
}

}  // namespace
}  // namespace mpix

MPIX_INTERPOSED int MPIX_Win_post_stream(MPI_Group group, MPI_Win win, void* stream) {
  return mpix::changing_epochs("MPIX_Win_post_stream", win, [=](mpix::WinState& state, mpix::Window& window) {
    window.post_stream(mpix::ranks_in_window(state, group), stream);
  });
}

MPIX_INTERPOSED int MPIX_Win_complete_stream(MPI_Win win, void* stream) {
  return mpix::changing_epochs("MPIX_Win_complete_stream", win,
                               [=](mpix::WinState&, mpix::Window& window) { window.complete_stream(stream); });
}

MPIX_INTERPOSED int MPIX_Win_wait_stream(MPI_Win win, void* stream) {
  return mpix::guarded(mpix::Caller::on_window("MPIX_Win_wait_stream", win),
                       [&] { mpix::stream_window(mpix::state_of(win)).wait_stream(stream); });
}

MPIX_INTERPOSED int MPIX_Win_complete_wait_stream(MPI_Win win, void* stream) {
  return mpix::changing_epochs("MPIX_Win_complete_wait_stream", win,
                               [=](mpix::WinState&, mpix::Window& window) { window.complete_wait_stream(stream); });
}
