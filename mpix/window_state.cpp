// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "window_state.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/log.h"
#include "collectives.h"
#include "device_memory.h"
#include "errors.h"
#include "progress.h"
#include "runtime.h"

namespace mpix {

std::atomic<int> recording_windows{0};

namespace {

std::atomic<int> windows_alive{0};
std::atomic<int> keyval{MPI_KEYVAL_INVALID};
std::mutex keyval_mutex;

std::atomic<std::uint64_t> windows_born{0};

/// The windows that have a state, by their handles. A handle leaves when MPI has freed its window, or, where others do
/// that, deletes its attribute.
class StatesByHandle {
 public:
  WinState* find(MPI_Win win) {
    std::shared_lock<std::shared_mutex> hold(mutex_);
    const auto found = states_.find(win);
    return found == states_.end() ? nullptr : found->second;
  }
  void add(MPI_Win win, WinState* state) {
    std::lock_guard<std::shared_mutex> hold(mutex_);
    states_[win] = state;
  }
  /// MPI may have given the handle to another window by now.
  void remove(MPI_Win win, const WinState* state) {
    std::lock_guard<std::shared_mutex> hold(mutex_);
    const auto own = states_.find(win);
    if (own != states_.end() && own->second == state) states_.erase(own);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<MPI_Win, WinState*> states_;
};

/// Never destroyed: a program may end with windows alive.
StatesByHandle& states() {
  static StatesByHandle& all = *new StatesByHandle;
  return all;
}

/// Grows whenever a window comes or goes, as MPI gives handles out again.
std::atomic<std::uint64_t> generation{1};

struct CachedState {
  MPI_Win win;
  WinState* state;
  std::uint64_t generation;  ///< 0: empty
};
constexpr unsigned cache_bits = 3;

// By the initial-exec model a put would take 1 ns of 29 less; and the library could not be loaded late by a program
// that has OpenMP's: static thread-local storage is short.
thread_local CachedState cache[1u << cache_bits];

/// MPI calls this when the window goes: from our MPI_Win_free, or because some other layer freed
/// it.
extern "C" int delete_state(MPI_Win, int, void* value, void*) {
  auto* state = static_cast<WinState*>(value);
  if (state->being_freed) {
    state->detached = true;
    return MPI_SUCCESS;
  }
  forget_handle(*state);
  try {
    Progress progress(Progress::Call::of_mpi);
    if (state->window) state->window->drain(progress.meanwhile());
    delete state;
  } catch (const std::exception& error) {
    log(LogLevel::warn, std::string("freeing a window: ") + error.what());
  }
  return MPI_SUCCESS;
}

int window_keyval() {
  std::lock_guard<std::mutex> hold(keyval_mutex);
  int key = keyval;
  if (key == MPI_KEYVAL_INVALID) {
    check(PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_state, &key, nullptr));
    keyval = key;
  }
  return key;
}

}  // namespace

WinState::WinState() : number(++windows_born), number_name("unnamed #" + std::to_string(number)) { ++windows_alive; }

WinState::~WinState() {
  set_records(false);
  if (group != MPI_GROUP_NULL) PMPI_Group_free(&group);
  window.reset();
  const std::string attached_to = device_memory ? whose_attachment(device_memory) : "";
  if (!attached_to.empty())
    log(LogLevel::warn, "MPI_Win_free: the memory is attached to the communicator '" + attached_to + "': it stays");
  else if (device_memory)
    release_device_memory(device_memory);
  --windows_alive;
}

bool any_window_alive() { return windows_alive != 0; }
bool sees_windows() { return windows_born != 0 || find_runtime(); }

void WinState::set_records(bool open) {
  if (records.exchange(open, std::memory_order_relaxed) == open) return;
  recording_windows.fetch_add(open ? 1 : -1, std::memory_order_relaxed);
}

WinState* find_state(MPI_Win win) {
  const std::uint64_t now = generation.load(std::memory_order_acquire);
  CachedState& cached = cache[slot_of_handle<cache_bits>(win)];
  if (cached.win == win && cached.generation == now) return cached.state;

  WinState* const state = states().find(win);
  if (state) cached = CachedState{win, state, now};
  return state;
}

WinState& state_of(MPI_Win win) {
  if (WinState* state = find_state(win)) return *state;
  throw Error(Fault::window, sees_windows()
                                 ? "there is no such window: it was freed, or it was not created through libmpix"
                                 : "the window was not created through libmpix, which must stand in front of MPI: link "
                                   "it before MPI (mpicc app.c -lmpix), or preload it");
}

Window& stream_window(WinState& state) {
  note_stream_call();
  if (state.window) {
    state.window->end_watch();  // of a call that an error handler has left by a jump
    return *state.window;
  }
  throw Error(state.unavailable_fault, state.unavailable);
}

void attach(MPI_Win win, WinState* state) {
  states().add(win, state);
  try {
    check(PMPI_Win_set_attr(win, window_keyval(), state));
  } catch (...) {
    states().remove(win, state);
    throw;
  }
  state->win = win;
  generation.fetch_add(1, std::memory_order_release);
}

void forget_handle(const WinState& state) {
  states().remove(state.win, &state);
  generation.fetch_add(1, std::memory_order_release);
}

void release_window_keyval() {
  std::lock_guard<std::mutex> hold(keyval_mutex);
  int key = keyval.exchange(MPI_KEYVAL_INVALID);
  if (key != MPI_KEYVAL_INVALID) PMPI_Win_free_keyval(&key);
}

}  // namespace mpix
