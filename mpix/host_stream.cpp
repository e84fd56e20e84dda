// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/stream.h"
#include "errors.h"
#include "mpi_library.h"
#include "mpix.h"

using mpix::Caller;
using mpix::Error;
using mpix::Fault;

namespace {

/// After a wait was released, what followed it in the stream has run nevertheless.
void require_in_time(bool in_time) {
  if (!in_time)
    throw Error(Fault::synchronization,
                "a wait of this stream was released, as a peer was lost or did not come in time (MPIX_TIMEOUT, "
                "MPIX_ON_TIMEOUT=error): a report before this says which; what followed it ran on stale data");
}

/// MPI's messages and ordinary epochs go on where a rank waits in MPI, and a peer may need them to come to the epoch
/// that this rank waits for.
void make_progress() {
  int is_there = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there,
              MPI_STATUS_IGNORE);  // not on MPI_COMM_SELF: MPICH has a short cut
}

/// Where no other thread of the program can be in MPI now, or may be.
bool may_call_mpi() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE, is_main = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  if (!initialized || finalized) return false;
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
    require_in_time(mpix::host_stream_synchronize(stream, may_call_mpi() ? make_progress : nullptr));
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_destroy(MPIX_Host_stream* stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_destroy"), [&] {
    if (!stream || !*stream) throw Error(Fault::argument, "no stream");
    const bool in_time = mpix::destroy_host_stream(*stream);
    *stream = nullptr;
    require_in_time(in_time);
  });
}
