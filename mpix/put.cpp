// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "put.h"

#include <cstdint>
#include <string>

#include "datatype.h"
#include "errors.h"

namespace mpix {

namespace {

/// Outside of a stream epoch only calls on windows that MPI cannot serve come here, and calls without any epoch.
void require_stream_epoch(WinState& state) {
  if (state.window && state.window->in_stream_access_epoch()) return;
  if (state.window && state.window->lacks_access_epoch()) {
    state.window->check_unbroken();
    throw Error(Fault::synchronization,
                "no access epoch is open on this window of stream epochs: MPI_Win_start(group, MPIX_MODE_STREAM, win) "
                "is missing");
  }
  if (state.rma_refused)
    throw Error(Fault::unsupported,
                "no stream access epoch is open, and the window is over memory of a GPU, which this MPI cannot "
                "reach (MPIX_MPI_GPU_AWARE=on if it can)");
}

/// While it lives, what MPI finds wrong about the window returns an error and does nothing else.
class ErrorsReturned {
 public:
  explicit ErrorsReturned(MPI_Win win) : win_(win) {
    PMPI_Win_get_errhandler(win, &handler_);
    PMPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  }
  ~ErrorsReturned() {
    PMPI_Win_set_errhandler(win_, handler_);
    PMPI_Errhandler_free(&handler_);
  }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;

 private:
  MPI_Win win_;
  MPI_Errhandler handler_ = MPI_ERRHANDLER_NULL;
};

}  // namespace

int judged_by_mpi(const char* call, MPI_Win win, const std::function<int()>& mpi_does) {
  int code = MPI_SUCCESS;
  {
    const ErrorsReturned quiet(win);
    code = mpi_does();
  }
  if (code == MPI_SUCCESS) return MPI_SUCCESS;
  int error_class = MPI_ERR_OTHER;
  PMPI_Error_class(code, &error_class);
  if (error_class != MPI_ERR_RMA_SYNC) {
    PMPI_Win_call_errhandler(win, code);
    return code;
  }
  return guarded(Caller::on_window(call, win), [] {
    throw Error(Fault::synchronization,
                "no access epoch is open on this window: MPI_Win_start is missing (with MPIX_MODE_STREAM for a stream "
                "epoch), or MPI_Win_fence or MPI_Win_lock");
  });
}

int record_put(const char* call, MPI_Win win, WinState& state, const PutArguments& put) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(state);
    if (put.target == MPI_PROC_NULL) return;
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
    require_stream_epoch(state);
    if (target == MPI_PROC_NULL) return;
    throw Error(Fault::unsupported, "a stream access epoch is open, in which only MPI_Put is supported so far");
  });
}

int refuse_request_based(const char* call, MPI_Win win, WinState& state) {
  return guarded(Caller::on_window(call, win), [&] {
    require_stream_epoch(state);
    stream_window(state).check_ordinary(false, {}, [](const EpochState& epochs) { epochs.check_passive_operation(); });
    throw Error(Fault::synchronization, "the stream access epoch was closed meanwhile");
  });
}

}  // namespace mpix
