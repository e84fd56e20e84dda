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

int free_window(MPI_Win* win, WinState& state) {
  const MPI_Win handle = *win;
  const int ready = guarded(Caller::on_window("MPI_Win_free", handle), [&] { quiesce(state); });
  if (ready != MPI_SUCCESS) return ready;
  state.being_freed = true;
  std::unique_ptr<BlockedCall> reported;
  try {
    if (state.window) reported = state.window->watch_free();
  } catch (const std::exception& error) {  // no memory, no thread: then nobody looks
    log(LogLevel::info, std::string("MPI_Win_free: ") + error.what());
  }
  const int freed = PMPI_Win_free(win);
  reported.reset();
  if (freed != MPI_SUCCESS) {
    // MPICH removes the attributes before it looks whether the window may be freed.
    state.being_freed = false;
    if (state.window) state.window->say_farewell(Farewell::none);
    if (state.detached) guarded(Caller::on_window("MPI_Win_free", handle), [&] { attach(handle, &state); });
    state.detached = false;
    return freed;
  }
  forget_cached_states();
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
