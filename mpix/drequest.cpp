// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The calls for device requests, and what there is of them in the process.
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/job_environment.h"
#include "base/log.h"
#include "device_requests.h"
#include "errors.h"
#include "mpix.h"
#include "persistent.h"
#include "runtime.h"

namespace mpix {
namespace {

std::mutex all_mutex;
std::shared_ptr<DeviceRequests>& all() {
  static std::shared_ptr<DeviceRequests>& requests = *new std::shared_ptr<DeviceRequests>;
  return requests;
}

std::shared_ptr<DeviceRequests> device_requests() {
  const int local_ranks = launcher_local_ranks();
  Runtime& runtime = ensure_runtime(local_ranks);
  const std::lock_guard<std::mutex> hold(all_mutex);
  if (!all()) all() = std::make_shared<DeviceRequests>(usable_device(runtime), runtime.settings, local_ranks);
  return all();
}

/// Made so, and inactive, as far as MPI tells.
Persistent inactive_persistent(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) throw Error(Fault::request, "MPI_REQUEST_NULL");
  const std::optional<Persistent> made = find_persistent(request);
  if (!made)
    throw Error(Fault::request,
                "it was not made by MPI_Send_init, MPI_Recv_init or their like, as far as libmpix has seen, or was "
                "freed");
#ifdef OPEN_MPI
  if (made->buffered)
    throw Error(Fault::unsupported,
                "Open MPI gives requests of MPI_Bsend_init other handles when they are started again");
#endif
  int is_over = 0;
  MPI_Status status;
  check(PMPI_Request_get_status(request, &is_over, &status));
  const bool is_empty = made->sends || status.MPI_SOURCE == MPI_ANY_SOURCE || made->partitions > 0;
  if (!is_over || !is_empty) throw Error(Fault::request, "the request is active: " + made->text());
  return *made;
}

}  // namespace

void end_device_requests() noexcept {
  std::shared_ptr<DeviceRequests> last;
  {
    const std::lock_guard<std::mutex> hold(all_mutex);
    last = all();
  }
  if (!last) return;
  // Not under all_mutex: the thread may be in an error handler of the program, which asks for a device request, waits
  // for that lock, and holds the one that this waits for.
  const std::size_t left = last->given_out();
  if (left == 0) {
    const std::lock_guard<std::mutex> hold(all_mutex);
    all().reset();
    return;
  }
  log(LogLevel::warn, "MPI_Finalize: " + std::to_string(left) +
                          (left == 1 ? " device request was not freed" : " device requests were not freed"));
  last->end_for("MPI_Finalize was called");
}

bool any_device_request_alive() {
  const std::lock_guard<std::mutex> hold(all_mutex);
  return all() != nullptr;
}

}  // namespace mpix

using mpix::Caller;
using mpix::Error;
using mpix::Fault;
using mpix::guarded;

MPIX_INTERPOSED int MPIX_Get_drequest(MPI_Request request, MPIX_Drequest* drequest) {
  return guarded(Caller::on_world("MPIX_Get_drequest"), [&] {
    if (!drequest) throw Error(Fault::argument, "no place for the device request");
    mpix::require_mpi();
    mpix::require_threads("a thread calls MPI for kernels");
    const mpix::Persistent made = mpix::inactive_persistent(request);
    *drequest = mpix::device_requests()->give_out(request, made);
  });
}

MPIX_INTERPOSED int MPIX_Free_drequest(MPIX_Drequest* drequest) {
  return guarded(Caller::on_world("MPIX_Free_drequest"), [&] {
    if (!drequest) throw Error(Fault::argument, "no device request");
    if (!drequest->state) throw Error(Fault::request, "no device request, or it was freed");
    mpix::device_requests()->take_back(*drequest);
    *drequest = MPIX_Drequest{};
  });
}
