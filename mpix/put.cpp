// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "datatype.h"
#include "errors.h"

namespace mpix {

namespace {

bool begins_with(const char* text, const char* start) { return std::strncmp(text, start, std::strlen(start)) == 0; }

/// Before this call.
const char* what_is_missing(const char* call) {
  if (begins_with(call, "MPI_Put")) return "MPI_Win_start(group, MPIX_MODE_STREAM, win) is missing";
  if (begins_with(call, "MPI_R")) return "MPI_Win_lock or MPI_Win_lock_all is missing";
  return "MPI_Win_start, MPI_Win_fence or MPI_Win_lock is missing (stream epochs have only MPI_Put so far)";
}

/// Outside of a stream epoch only calls on windows that MPI cannot serve come here, and calls without any epoch.
void require_stream_epoch(const char* call, WinState& state) {
  if (state.window && state.window->in_stream_access_epoch()) return;
  if (state.window && state.window->lacks_access_epoch()) {
    state.window->check_unbroken();
    throw Error(Fault::synchronization,
                "no access epoch is open on this window: " + std::string(what_is_missing(call)));
  }
  if (state.rma_refused)
    throw Error(Fault::unsupported,
                "no stream access epoch is open, and the window is over memory of a GPU, which this MPI cannot "
                "reach (MPIX_MPI_GPU_AWARE=on if it can)");
}

}  // namespace

int record_put(const char* call, MPI_Win win, WinState& state, const PutArguments& put) {
  return guarded(Caller::on_window(call, win), [&] {
    if (put.target == MPI_PROC_NULL) return;
    require_stream_epoch(call, state);
    const ByteRun from = run_of_bytes(put.origin_count, put.origin_type, "origin");
    const ByteRun to = run_of_bytes(put.target_count, put.target_type, "target");
    if (from.bytes != to.bytes)
      throw Error(Fault::truncation, "the origin buffer has " + std::to_string(from.bytes) +
                                         " bytes, the target's has " + std::to_string(to.bytes));
    // A datatype of absolute addresses goes with MPI_BOTTOM, which may be null.
    if (from.bytes > 0 && !put.origin && from.first == 0)
      throw Error(Fault::argument, "the origin buffer is a null pointer");
    const char* const source = reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(put.origin) + from.first);
    stream_window(state).put(Put{source, from.bytes, put.target, put.displacement, to.first});
  });
}

int refuse_operation(const char* call, MPI_Win win, WinState& state, int target) {
  return guarded(Caller::on_window(call, win), [&] {
    if (target == MPI_PROC_NULL) return;
    require_stream_epoch(call, state);
    throw Error(Fault::unsupported, "a stream access epoch is open, in which only MPI_Put is supported so far");
  });
}

int refuse_request_based(const char* call, MPI_Win win, WinState& state) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(call, state);
    stream_window(state).check_ordinary(false, {}, [](const EpochState& epochs) { epochs.check_passive_operation(); });
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  });
}

}  // namespace mpix
