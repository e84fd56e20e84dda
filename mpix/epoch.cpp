// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "errors.h"
#include "group_ranks.h"
#include "mpix.h"
#include "window_state.h"

namespace mpix {
namespace {

/// MPI_Win_start with MPIX_MODE_STREAM. The other assertions promise what a stream epoch does not
/// build on.
int start_stream(MPI_Group group, MPI_Win win) {
  return guarded(Caller::on_window("MPI_Win_start", win), [&] {
    WinState& state = state_of(win);
    stream_window(state).start_stream(ranks_in_window(state, group));
    state.follow_access_epoch();
  });
}

/// A call of an ordinary epoch.
struct OrdinaryCall {
  const char* name;
  bool opens_epoch = false;            ///< then it is for windows that are not broken: their peers may never come
  std::optional<Ordinary> waits = {};  ///< in MPI for peers, for ever where a port has forgotten a stream call
};

/// While it lives the call is reported if it hangs.
class Watched {
 public:
  Watched(Window& window, const OrdinaryCall& call) : window_(window) {
    try {
      window.watch_ordinary(call.name, *call.waits);
    } catch (const std::exception& error) {  // no memory, no thread: then nobody looks
      log(LogLevel::info, std::string(call.name) + ": " + error.what());
    }
  }
  ~Watched() { window_.end_watch(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Window& window_;
};

/// Refused where it collides with a stream epoch, else MPI's; what it opens or closes is noted once MPI has done it.
template <class Check, class Forward, class Change>
int ordinary(const OrdinaryCall& call, MPI_Win win, Check check, Forward forward, Change change) {
  WinState* state = find_state(win);
  Window* window = state ? state->window.get() : nullptr;
  if (!window) return forward();
  window->end_watch();  // of a call that an error handler has left by a jump
  bool may_hang = false;
  const int allowed = guarded(Caller::on_window(call.name, win), [&] {
    may_hang = window->check_ordinary(call.opens_epoch, call.waits,
                                      [&](const EpochState& epochs) { std::invoke(check, epochs); });
  });
  if (allowed != MPI_SUCCESS) return allowed;
  int done = MPI_SUCCESS;
  {
    std::optional<Watched> watched;
    if (may_hang) watched.emplace(*window, call);
    done = forward();
  }
  if (done == MPI_SUCCESS) {
    window->note_ordinary([&](EpochState& epochs) { std::invoke(change, epochs); });
    state->follow_access_epoch();
  }
  return done;
}

/// Nothing to check, or nothing to note.
constexpr auto nothing = [](const EpochState&) {};

/// A call that belongs to passive-target epochs, and is quick: one look where no stream epoch is
/// open.
template <class Forward>
int passive(const char* call, MPI_Win win, Forward forward) {
  if (!recording_state(win)) return forward();
  return ordinary({call}, win, &EpochState::check_passive_operation, forward, nothing);
}

}  // namespace
}  // namespace mpix

using mpix::EpochState;

MPIX_INTERPOSED int MPI_Win_start(MPI_Group group, int assert, MPI_Win win) {
  if (assert & MPIX_MODE_STREAM) return mpix::start_stream(group, win);
  return mpix::ordinary(
      {"MPI_Win_start", true, mpix::Ordinary::access}, win, &EpochState::check_start,
      [=] { return PMPI_Win_start(group, assert, win); }, &EpochState::started);
}

MPIX_INTERPOSED int MPI_Win_complete(MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_complete", false, mpix::Ordinary::access}, win, &EpochState::check_complete,
      [=] { return PMPI_Win_complete(win); }, &EpochState::completed);
}

MPIX_INTERPOSED int MPI_Win_post(MPI_Group group, int assert, MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_post", true}, win, &EpochState::check_post, [=] { return PMPI_Win_post(group, assert, win); },
      &EpochState::posted);
}

MPIX_INTERPOSED int MPI_Win_wait(MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_wait", false, mpix::Ordinary::exposure}, win, &EpochState::check_wait,
      [=] { return PMPI_Win_wait(win); }, &EpochState::waited);
}

MPIX_INTERPOSED int MPI_Win_test(MPI_Win win, int* flag) {
  return mpix::ordinary(
      {"MPI_Win_test"}, win, &EpochState::check_wait, [=] { return PMPI_Win_test(win, flag); },
      [=](EpochState& epochs) {
        if (*flag) epochs.waited();
      });
}

MPIX_INTERPOSED int MPI_Win_fence(int assert, MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_fence", true}, win, &EpochState::check_fence, [=] { return PMPI_Win_fence(assert, win); },
      [=](EpochState& epochs) { epochs.fenced(!(MPI_MODE_NOSUCCEED & assert)); });
}

MPIX_INTERPOSED int MPI_Win_lock(int lock_type, int rank, int assert, MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_lock", true}, win, &EpochState::check_lock, [=] { return PMPI_Win_lock(lock_type, rank, assert, win); },
      &EpochState::locked);
}

MPIX_INTERPOSED int MPI_Win_unlock(int rank, MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_unlock"}, win, mpix::nothing, [=] { return PMPI_Win_unlock(rank, win); }, &EpochState::unlocked);
}

MPIX_INTERPOSED int MPI_Win_lock_all(int assert, MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_lock_all", true}, win, &EpochState::check_lock, [=] { return PMPI_Win_lock_all(assert, win); },
      &EpochState::locked);
}

MPIX_INTERPOSED int MPI_Win_unlock_all(MPI_Win win) {
  return mpix::ordinary(
      {"MPI_Win_unlock_all"}, win, mpix::nothing, [=] { return PMPI_Win_unlock_all(win); }, &EpochState::unlocked);
}

MPIX_INTERPOSED int MPI_Win_flush(int rank, MPI_Win win) {
  return mpix::passive("MPI_Win_flush", win, [=] { return PMPI_Win_flush(rank, win); });
}

MPIX_INTERPOSED int MPI_Win_flush_all(MPI_Win win) {
  return mpix::passive("MPI_Win_flush_all", win, [=] { return PMPI_Win_flush_all(win); });
}

MPIX_INTERPOSED int MPI_Win_flush_local(int rank, MPI_Win win) {
  return mpix::passive("MPI_Win_flush_local", win, [=] { return PMPI_Win_flush_local(rank, win); });
}

MPIX_INTERPOSED int MPI_Win_flush_local_all(MPI_Win win) {
  return mpix::passive("MPI_Win_flush_local_all", win, [=] { return PMPI_Win_flush_local_all(win); });
}
