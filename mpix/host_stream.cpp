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

/// After a time-out released a wait, what followed it in the stream has run nevertheless.
void require_in_time(bool in_time) {
  if (!in_time)
    throw Error(Fault::synchronization,
                "a wait of this stream was released by its time-out (MPIX_TIMEOUT, "
                "MPIX_ON_TIMEOUT=error); what "
                "followed it ran on stale data");
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
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_synchronize"),
                       [&] { require_in_time(mpix::host_stream_synchronize(stream)); });
}

MPIX_INTERPOSED int MPIX_Host_stream_destroy(MPIX_Host_stream* stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_destroy"), [&] {
    if (!stream || !*stream) throw Error(Fault::argument, "no stream");
    const bool in_time = mpix::destroy_host_stream(*stream);
    *stream = nullptr;
    require_in_time(in_time);
  });
}
