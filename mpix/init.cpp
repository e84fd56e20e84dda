// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "channel.h"
#include "collectives.h"
#include "device_memory.h"
#include "device_requests.h"
#include "domain.h"
#include "epoch/live_windows.h"
#include "errors.h"
#include "halo.h"
#include "mpix/messages/world.h"
#include "program.h"
#include "right_mpi.h"
#include "runtime.h"
#include "team_state.h"
#include "window_state.h"

namespace {

int start(const char* call) {
  return mpix::guarded(mpix::Caller::on_world(call), [] {
    const mpix::Runtime& runtime = mpix::start_runtime_over_world();
    if (!runtime.device) throw mpix::Error(mpix::Fault::argument, runtime.failure);
  });
}

/// What the program is told of threads, where MPI was asked for more than the program asks for; below 0: MPI's answer.
/// Programs test that they got what they asked for. MPICH and Open MPI both give that, up to what they have, and
/// MPI_THREAD_SINGLE where MPI_Init is called.
std::atomic<int> told_level{-1};

int init(int* argc, char*** argv, int required, int* provided) {
  const int level = mpix::thread_level(required);
  const int initialized = PMPI_Init_thread(argc, argv, level, provided);
  if (initialized == MPI_SUCCESS && level > required) told_level = *provided = std::min(required, *provided);
  return initialized;
}

#ifdef HAVE_MPI_SESSION_INIT
int threads_of(MPI_Session session) {
  static const std::pair<const char*, int> levels[] = {{"MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE},
                                                       {"MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED},
                                                       {"MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED}};
  MPI_Info info = MPI_INFO_NULL;
  if (PMPI_Session_get_info(session, &info) != MPI_SUCCESS) return MPI_THREAD_SINGLE;
  const std::string named = mpix::info_value(info, "thread_level");
  PMPI_Info_free(&info);
  for (const auto& [name, level] : levels)
    if (named == name) return level;
  return MPI_THREAD_SINGLE;
}
#endif

}  // namespace

MPIX_INTERPOSED int MPI_Init(int* argc, char*** argv) {
  mpix::require_right_mpi();
  int provided = MPI_THREAD_SINGLE;
  const int initialized = mpix::thread_level(MPI_THREAD_SINGLE) == MPI_THREAD_SINGLE
                              ? PMPI_Init(argc, argv)
                              : init(argc, argv, MPI_THREAD_SINGLE, &provided);
  return initialized == MPI_SUCCESS ? start("MPI_Init") : initialized;
}

MPIX_INTERPOSED int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  mpix::require_right_mpi();
  const int initialized = init(argc, argv, required, provided);
  return initialized == MPI_SUCCESS ? start("MPI_Init_thread") : initialized;
}

#ifdef HAVE_MPI_SESSION_INIT
MPIX_INTERPOSED int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session* session) {
  mpix::require_right_mpi();
  const int made = PMPI_Session_init(info, handler, session);
  if (made == MPI_SUCCESS) mpix::note_session(threads_of(*session));
  return made;
}

MPIX_INTERPOSED int MPI_Session_finalize(MPI_Session* session) {
  const int ended = PMPI_Session_finalize(session);
  if (ended == MPI_SUCCESS) mpix::forget_session();
  return ended;
}
#endif

MPIX_INTERPOSED int MPI_Query_thread(int* provided) {
  const int asked = PMPI_Query_thread(provided);
  if (asked == MPI_SUCCESS && told_level >= 0) *provided = told_level;
  return asked;
}

MPIX_INTERPOSED int MPI_Finalize(void) {
  mpix::end_domains();
  mpix::end_halos();
  mpix::end_device_requests();
  mpix::end_channels();
  if (mpix::program_uses_libmpix()) mpix::say_farewell_on_all_windows(mpix::Farewell::finalize);
  mpix::wait_for_collectives();
  mpix::release_window_keyval();
  mpix::forget_comm_state(MPI_COMM_WORLD);
  mpix::forget_comm_state(MPI_COMM_SELF);
  mpix::release_comm_keyval();
  mpix::release_mpi();
  const int finalized = PMPI_Finalize();
  // A program that left a window, a domain, or memory of MPI_Alloc_mem, behind may have work under way on it.
  const bool in_use = mpix::any_window_alive() || mpix::device_memory_in_use() || mpix::any_domain_alive() ||
                      mpix::any_collectives_alive() || mpix::any_channel_alive() || mpix::any_halo_alive() ||
                      mpix::any_device_request_alive();
  if (finalized == MPI_SUCCESS && !in_use) mpix::end_runtime();
  return finalized;
}
