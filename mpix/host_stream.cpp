// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/service.h"
#include "device/host/stream.h"
#include "errors.h"
#include "mpi_library.h"
#include "mpix.h"
#include "progress.h"

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
    mpix::Progress progress(mpix::Progress::Call::other);
    require_all_waits(mpix::host_stream_synchronize(stream, progress.meanwhile()));
  });
}

MPIX_INTERPOSED int MPIX_Host_stream_destroy(MPIX_Host_stream* stream) {
  return mpix::guarded(Caller::on_world("MPIX_Host_stream_destroy"), [&] {
    if (!stream || !*stream) throw Error(Fault::argument, "no stream");
    mpix::Progress progress(mpix::Progress::Call::other);
    const bool none_released = mpix::destroy_host_stream(*stream, progress.meanwhile());
    *stream = nullptr;
    require_all_waits(none_released);
  });
}
