// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "epoch/window.h"
#include "mpi_library.h"
#include "program.h"

namespace mpix {

/// What libmpix keeps for an MPI window: the value of a window attribute.
struct WinState {
  WinState();
  ~WinState();
  WinState(const WinState&) = delete;
  WinState& operator=(const WinState&) = delete;

  std::unique_ptr<Window> window;  ///< null: no stream epochs on this window, because …
  Fault unavailable_fault = Fault::other;
  std::string unavailable;

  MPI_Win win = MPI_WIN_NULL;     ///< that it is attached to
  const std::uint64_t number;     ///< of all windows that this process ever had
  const std::string number_name;  ///< what messages call a window that has no name
  MPI_Group group = MPI_GROUP_NULL;
  int size = 0;
  int flavour = 0;
  bool hidden = false;  ///< MPI's window is over nothing; these are what it does not know:
  void* base = nullptr;
  MPI_Aint bytes = 0;
  int displacement_unit = 1;
  bool lazy_post = false;
  bool rma_refused = false;       ///< hidden on some rank: ordinary RMA calls cannot be MPI's
  void* device_memory = nullptr;  ///< of MPI_Win_allocate, where we allocated and not MPI
  /// RMA calls are not MPI's: a stream access epoch is open, or none at all where there should be one, or rma_refused.
  std::atomic<bool> records{false};
  std::mutex following;

  /// MPI_Win_free is at work: the attribute's end is not the state's.
  bool being_freed = false;
  bool detached = false;

  /// After a call that opens or closes epochs, whether it succeeded or not: follow the
  /// engine, which also ends the epochs of a window that broke.
  void follow_access_epoch() {
    std::lock_guard<std::mutex> hold(following);  // the last one to look is the last one to tell
    set_records(rma_refused || (window && (window->in_stream_access_epoch() || is_without_epoch())));
  }
  void set_records(bool open);
  bool is_without_epoch() const {
    return window->lacks_access_epoch() && (window->has_stream_epochs() || program_uses_libmpix());
  }
  /// There may be an epoch that Fortran's interfaces opened past libmpix.
  bool is_mpis_to_judge() const {
    return !rma_refused && window && window->lacks_access_epoch() && !window->has_stream_epochs() &&
           fortran_is_loaded();
  }
};

/// The state of a window; null where the handle is not that of a window created through libmpix, or of none. Does not
/// ask MPI, which would raise an error for what is no handle. Some nanoseconds for the windows that this thread used
/// last.
WinState* find_state(MPI_Win win);

/// The same, or throws: for calls that make no sense without it.
WinState& state_of(MPI_Win win);

/// libmpix stands in front of MPI: it has seen MPI_Init, or a window.
bool sees_windows();

/// The engine's window, or throws the reason why there is none.
Window& stream_window(WinState& state);

/// Attach the state to a new window, or again after a failed MPI_Win_free.
void attach(MPI_Win win, WinState* state);
/// After MPI has freed the window: no thread takes the state from its cache any more.
void forget_handle(const WinState& state);
void release_window_keyval();

bool any_window_alive();

/// Windows with a stream access epoch open, in this process.
extern std::atomic<int> recording_windows;

/// The window's state if its RMA calls are to be recorded or refused; null: they are MPI's. The usual answer
/// costs a load and a branch. The thread that opened the epoch, or was told of it by that thread,
/// sees it open.
inline WinState* recording_state(MPI_Win win) {
  if (recording_windows.load(std::memory_order_relaxed) == 0) return nullptr;
  WinState* state = find_state(win);
  return state && state->records.load(std::memory_order_relaxed) ? state : nullptr;
}

/// A small number from a handle, which is an int or a pointer.
template <unsigned bits, class Handle>
unsigned slot_of_handle(Handle handle) {
  const auto value = static_cast<std::uint64_t>((std::uintptr_t)handle);
  return static_cast<unsigned>((value * 0x9E3779B97F4A7C15u) >> (64 - bits));
}

}  // namespace mpix
