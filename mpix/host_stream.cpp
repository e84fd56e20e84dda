// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/service.h"
#include "device/host/stream.h"
#include "errors.h"
#include "mpi_library.h"
#include "mpix.h"

using mpix::Caller;
using mpix::Error;
using mpix::Fault;

namespace {

/// After a wait was released, what followed it in the stream has run nevertheless. The error may end the program, and
/// the service tells the reason.
void require_all_waits(bool none_released) {
  if (none_released) return;
  mpix::let_service_look();
  throw Error(Fault::synchronization,
              "a wait of this stream was released: a report before this says why (a peer was lost or did not come in "
              "time, or ranks called different things); what followed it ran on stale data");
}

/// MPI's messages and ordinary epochs go on where a rank waits in MPI, and a peer may need them to come to the epoch
/// that this rank waits for. What is tested here is never over and concerns nobody: no message of the program is
/// touched, and no error of a communicator raised.
class Progress {
 public:
  Progress() = default;
  ~Progress() {
    if (never_ == MPI_REQUEST_NULL) return;
    PMPI_Grequest_complete(never_);
    PMPI_Wait(&never_, MPI_STATUS_IGNORE);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void make() {
    if (never_ == MPI_REQUEST_NULL && PMPI_Grequest_start(&query, &free, &cancel, nullptr, &never_) != MPI_SUCCESS)
      return;
    int over = 0;
    PMPI_Test(&never_, &over, MPI_STATUS_IGNORE);
  }

 private:
  static int query(void*, MPI_Status* status) {
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
  }
  static int free(void*) { return MPI_SUCCESS; }
  static int cancel(void*, int) { return MPI_SUCCESS; }

  MPI_Request never_ = MPI_REQUEST_NULL;
};

/// Whether no other thread of the program can be in MPI now, or several may be.
bool may_call_mpi() {
  if (!mpix::mpi_is_up()) return false;
  int level = MPI_THREAD_SINGLE, is_main = 0;
  PMPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) return true;
  PMPI_Is_thread_main(&is_main);
  return is_main && level <= MPI_THREAD_FUNNELED;
}

}  // namespace

MPIX_INTERPOSED int MPIX_Host_stream_create(MPIX_Host_stream* stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_create"), [&] {
    if (!stream) throw Error(Fault::argument, "no place for the stream");
    *stream = reinterpret_cast<MPIX_Host_stream>(mpix::create_host_stream());
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_launch(MPIX_Host_stream stream, void (*fn)(void*), void* arg) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_launch"), [&] {
    if (!fn) throw Error(Fault::argument, "no function to call");
    mpix::host_stream_launch(stream, fn, arg);
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_synchronize(MPIX_Host_stream stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_synchronize"), [&] {
    Progress progress;
    require_all_waits(may_call_mpi() ? mpix::host_stream_synchronize(stream, [&] { progress.make(); })
                                     : mpix::host_stream_synchronize(stream));
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_destroy(MPIX_Host_stream* stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_destroy"), [&] {
    if (!stream || !*stream) throw Error(Fault::argument, "no stream");
    const bool none_released = mpix::destroy_host_stream(*stream);
    *stream = nullptr;
    require_all_waits(none_released);
  });
}
