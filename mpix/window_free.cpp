// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <exception>
#include <memory>
#include <string>

#include "base/log.h"
#include "errors.h"
#include "progress.h"
#include "runtime.h"
#include "window_state.h"

namespace mpix {
namespace {

/// Everything enqueued here has run when MPI_Win_free begins, which MPI makes a barrier (all but
/// for windows with no_locks). So when we give our memory back no peer has work under way that
/// concerns it: whatever it enqueued for us has been waited for by our exposure epochs. What it
/// still maps stays valid until it unmaps.
void quiesce(WinState& state) {
  if (!state.window) return;
  state.window->check_free();
  state.window->say_farewell(Farewell::win_free);
  Progress progress(Progress::Call::of_mpi);
  if (!state.window->drain(progress.meanwhile()))
    log(LogLevel::warn, "window '" + state.window->name() + "' is freed after it broke");
}

void report(const WinState& state) {
  const Runtime* runtime = find_runtime();
  if (!state.window || !runtime || !runtime->settings.stats) return;
  // The level that is always printed: the user asked for it.
  log(LogLevel::error, "window '" + state.window->name() + "': " + describe(state.window->stats()));
}

/// MPI has not freed it. MPICH removes the attributes before it looks whether a window may be freed.
void go_on_with(MPI_Win win, WinState& state) {
  state.being_freed = false;
  if (state.window) {
    state.window->end_watch();
    state.window->say_farewell(Farewell::none);
  }
  if (state.detached) guarded(Caller::on_window("MPI_Win_free", win), [&] { attach(win, &state); });
  state.detached = false;
}

int free_in_mpi(MPI_Win* win, WinState& state) {
  const MPI_Win handle = *win;
  try {
    const int freed = PMPI_Win_free(win);
    if (freed != MPI_SUCCESS) go_on_with(handle, state);
    return freed;
  } catch (...) {  // by an error handler
    go_on_with(handle, state);
    throw;
  }
}

int free_window(MPI_Win* win, WinState& state) {
  const MPI_Win handle = *win;
  if (state.being_freed) go_on_with(handle, state);  // an error handler has left the call before by a jump
  const int ready = guarded(Caller::on_window("MPI_Win_free", handle), [&] { quiesce(state); });
  if (ready != MPI_SUCCESS) return ready;
  state.being_freed = true;
  try {
    if (state.window) state.window->watch_free();
  } catch (const std::exception& error) {  // no memory, no thread: then nobody looks
    log(LogLevel::info, std::string("MPI_Win_free: ") + error.what());
  }
  const int freed = free_in_mpi(win, state);
  if (freed != MPI_SUCCESS) return freed;
  if (state.window) state.window->end_watch();
  forget_handle(state);
  return guarded(Caller::on_world("MPI_Win_free"), [&] {
    const std::unique_ptr<WinState> last(&state);
    report(state);
  });
}

}  // namespace
}  // namespace mpix

MPIX_INTERPOSED int MPI_Win_free(MPI_Win* win) {
  mpix::WinState* state = win ? mpix::find_state(*win) : nullptr;
  return state ? mpix::free_window(win, *state) : PMPI_Win_free(win);
}
