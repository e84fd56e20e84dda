// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Persistent requests are noted when they are made, for device requests: a call more than MPI's own once in the life of
// each. Those of Fortran, where MPI's Fortran does not come by here, and of collectives are not known.
#include "persistent.h"

#include <mutex>
#include <new>
#include <unordered_map>

#include "errors.h"

namespace mpix {
namespace {

struct Noted {
  Persistent made;
  int drequest = -1;
};

std::mutex mutex;
std::unordered_map<MPI_Request, Noted>& noted() {
  static std::unordered_map<MPI_Request, Noted>& all = *new std::unordered_map<MPI_Request, Noted>;
  return all;
}

template <class Make>
int make(const Persistent& what, const MPI_Request* request, Make call) {
  const int result = call();
  if (result != MPI_SUCCESS) return result;
  try {
    const std::lock_guard<std::mutex> hold(mutex);
    noted()[*request] = Noted{what, -1};
  } catch (const std::bad_alloc&) {  // it has no device request then
  }
  return result;
}

Persistent send_to(int peer, int tag, int partitions = 0) { return {true, peer, tag, partitions, false}; }
Persistent buffered_send_to(int peer, int tag) { return {true, peer, tag, 0, true}; }
Persistent receive_from(int peer, int tag, int partitions = 0) { return {false, peer, tag, partitions, false}; }

}  // namespace

std::string Persistent::text() const {
  const std::string rank = peer == MPI_PROC_NULL    ? "nobody"
                           : peer == MPI_ANY_SOURCE ? "any rank"
                                                    : "rank " + std::to_string(peer);
  return (sends ? "send to " : "receive from ") + rank +
         (tag == MPI_ANY_TAG ? ", any tag" : ", tag " + std::to_string(tag)) +
         (partitions > 0 ? ", " + std::to_string(partitions) + " partitions" : "");
}

std::optional<Persistent> find_persistent(MPI_Request request) {
  const std::lock_guard<std::mutex> hold(mutex);
  const auto found = noted().find(request);
  if (found == noted().end()) return std::nullopt;
  return found->second.made;
}

bool bind_persistent(MPI_Request request, int drequest) {
  const std::lock_guard<std::mutex> hold(mutex);
  const auto found = noted().find(request);
  if (found == noted().end() || found->second.drequest >= 0) return false;
  found->second.drequest = drequest;
  return true;
}

void unbind_persistent(MPI_Request request) {
  const std::lock_guard<std::mutex> hold(mutex);
  const auto found = noted().find(request);
  if (found != noted().end()) found->second.drequest = -1;
}

}  // namespace mpix

using mpix::buffered_send_to;
using mpix::receive_from;
using mpix::send_to;

MPIX_INTERPOSED int MPI_Request_free(MPI_Request* request) {
  if (!request) return PMPI_Request_free(request);
  // Forgotten in front of MPI's call: another thread may get the same handle at once.
  std::optional<mpix::Noted> gone;
  {
    const std::lock_guard<std::mutex> hold(mpix::mutex);
    const auto found = mpix::noted().find(*request);
    if (found != mpix::noted().end()) {
      gone = found->second;
      if (gone->drequest < 0) mpix::noted().erase(found);
    }
  }
  if (gone && gone->drequest >= 0)
    return mpix::guarded(mpix::Caller::on_world("MPI_Request_free"), [&] {
      throw mpix::Error(mpix::Fault::request, "device request " + std::to_string(gone->drequest) +
                                                  " stands for this one (MPIX_Free_drequest first)");
    });
  const MPI_Request handle = *request;
  const int freed = PMPI_Request_free(request);
  if (freed != MPI_SUCCESS && gone) (void)mpix::make(gone->made, &handle, [] { return MPI_SUCCESS; });
  return freed;
}

#define MPIX_NOTE_SENDS(name, Count, made)                                                                          \
  MPIX_INTERPOSED int MPI_##name(const void* buf, Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, \
                                 MPI_Request* request) {                                                            \
    return mpix::make(made(peer, tag), request,                                                                     \
                      [&] { return PMPI_##name(buf, count, type, peer, tag, comm, request); });                     \
  }
#define MPIX_NOTE_RECEIVES(name, Count)                                                                       \
  MPIX_INTERPOSED int MPI_##name(void* buf, Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, \
                                 MPI_Request* request) {                                                      \
    return mpix::make(receive_from(peer, tag), request,                                                       \
                      [&] { return PMPI_##name(buf, count, type, peer, tag, comm, request); });               \
  }

MPIX_NOTE_SENDS(Send_init, int, send_to)
MPIX_NOTE_SENDS(Bsend_init, int, buffered_send_to)
MPIX_NOTE_SENDS(Ssend_init, int, send_to)
MPIX_NOTE_SENDS(Rsend_init, int, send_to)
MPIX_NOTE_RECEIVES(Recv_init, int)

#ifdef HAVE_MPI_LARGE_COUNT
MPIX_NOTE_SENDS(Send_init_c, MPI_Count, send_to)
MPIX_NOTE_SENDS(Bsend_init_c, MPI_Count, buffered_send_to)
MPIX_NOTE_SENDS(Ssend_init_c, MPI_Count, send_to)
MPIX_NOTE_SENDS(Rsend_init_c, MPI_Count, send_to)
MPIX_NOTE_RECEIVES(Recv_init_c, MPI_Count)
#endif

#ifdef HAVE_MPI_PSEND_INIT
MPIX_INTERPOSED int MPI_Psend_init(const void* buf, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return mpix::make(send_to(peer, tag, partitions), request,
                    [&] { return PMPI_Psend_init(buf, partitions, count, type, peer, tag, comm, info, request); });
}
MPIX_INTERPOSED int MPI_Precv_init(void* buf, int partitions, MPI_Count count, MPI_Datatype type, int peer, int tag,
                                   MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return mpix::make(receive_from(peer, tag, partitions), request,
                    [&] { return PMPI_Precv_init(buf, partitions, count, type, peer, tag, comm, info, request); });
}
#endif
