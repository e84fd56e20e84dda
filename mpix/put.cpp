// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

#include <string>

#include "datatype.h"
#include "errors.h"

namespace mpix {

namespace {

/// Outside of a stream epoch only calls on windows that MPI cannot serve come here.
void require_stream_epoch(WinState& state) {
  if (state.window && state.window->in_stream_access_epoch()) return;
  if (state.rma_refused)
    throw Error(Fault::unsupported,
                "no stream access epoch is open, and the window is over memory of a GPU, which this MPI cannot "
                "reach (MPIX_MPI_GPU_AWARE=on if it can)");
}

}  // namespace

int record_put(const char* call, MPI_Win win, WinState& state, const PutArguments& put) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(state);
    if (put.target == MPI_PROC_NULL) return;
    const std::size_t bytes = contiguous_bytes(put.origin_count, put.origin_type, "origin");
    const std::size_t target_bytes = contiguous_bytes(put.target_count, put.target_type, "target");
    if (bytes != target_bytes)
      throw Error(Fault::truncation, "the origin buffer has " + std::to_string(bytes) +
                                         " bytes, the target's has " +
                                         std::to_string(target_bytes));
    if (bytes > 0 && !put.origin)
      throw Error(Fault::argument, "the origin buffer is a null pointer");
    stream_window(state).put(Put{put.origin, bytes, put.target, put.displacement});
  });
}

int refuse_operation(const char* call, MPI_Win win, WinState& state) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(state);
    throw Error(Fault::unsupported,
                "a stream access epoch is open, in which only MPI_Put is supported so far");
  });
}

int refuse_request_based(const char* call, MPI_Win win, WinState& state) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(state);
    stream_window(state).with_state([](EpochState& epochs) { epochs.check_passive_operation(); });
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  });
}

}  // namespace mpix
