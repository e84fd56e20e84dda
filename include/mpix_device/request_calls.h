// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_requests.h>

#include "channel_calls.h"
#include "requests.h"

/// Kernel-triggered MPI, for one thread at a time: the names and arguments of HPE Cray MPICH. Each call returns 0, or
/// one of MPIX_Dev_channel_result, and has then done nothing; but MPIX_Startall has started, and MPIX_Waitall
/// completed, those in front. A status has to be MPI_STATUS_IGNORE, or MPI_STATUSES_IGNORE.
namespace mpix {
namespace dev {

MPIX_DEV_FN bool is_ignored(const MPI_Status* status) { return status == MPI_STATUS_IGNORE; }
MPIX_DEV_FN bool are_ignored(const MPI_Status* statuses) { return statuses == MPI_STATUSES_IGNORE; }
MPIX_DEV_FN bool is_list(int count, const MPIX_Drequest* list) { return count >= 0 && (count == 0 || list); }
MPIX_DEV_FN int any_told(const AnyFound& found, int* index) {
  if (found.result == Post::ok) *index = found.index < 0 ? MPI_UNDEFINED : found.index;
  return result_of(found.result);
}

}  // namespace dev
}  // namespace mpix

/* MPI sees all that this thread wrote before, and, behind a barrier of its block, all that the block wrote.
 * MPIX_DEV_ACTIVE: it was started, and is not complete. */
MPIX_DEV_FN int MPIX_Start(MPIX_Drequest* drequest) {
  return drequest ? mpix::dev::result_of(mpix::dev::start_requests(1, drequest)) : MPIX_DEV_ARG;
}
/* As the example of HPE's pages has it. */
MPIX_DEV_FN int MPIX_Start(MPIX_Drequest drequest) {
  return mpix::dev::result_of(mpix::dev::start_requests(1, &drequest));
}
MPIX_DEV_FN int MPIX_Startall(int count, MPIX_Drequest drequests[]) {
  if (!mpix::dev::is_list(count, drequests)) return MPIX_DEV_ARG;
  return mpix::dev::result_of(mpix::dev::start_requests(static_cast<std::uint32_t>(count), drequests));
}

/* *flag = 1: it is complete, what was received is there, and it is inactive now; or it was not started. Else 0. */
MPIX_DEV_FN int MPIX_Test(MPIX_Drequest* drequest, int* flag, MPI_Status* status) {
  if (!drequest || !flag || !mpix::dev::is_ignored(status)) return MPIX_DEV_ARG;
  bool done = false;
  const mpix::dev::Post result = mpix::dev::test_request(*drequest, &done);
  *flag = done;
  return mpix::dev::result_of(result);
}
/* All of them, or none. */
MPIX_DEV_FN int MPIX_Testall(int count, MPIX_Drequest drequests[], int* flag, MPI_Status statuses[]) {
  if (!mpix::dev::is_list(count, drequests) || !flag || !mpix::dev::are_ignored(statuses)) return MPIX_DEV_ARG;
  bool done = false;
  const mpix::dev::Post result = mpix::dev::test_requests(static_cast<std::uint32_t>(count), drequests, &done);
  *flag = done;
  return mpix::dev::result_of(result);
}
/* One of those that were started, each in its turn. *index: MPI_UNDEFINED, with *flag = 1, where none was started. */
MPIX_DEV_FN int MPIX_Testany(int count, MPIX_Drequest drequests[], int* index, int* flag, MPI_Status* status) {
  if (!mpix::dev::is_list(count, drequests) || !index || !flag || !mpix::dev::is_ignored(status)) return MPIX_DEV_ARG;
  mpix::dev::AnyFound found = mpix::dev::look_for_any(static_cast<std::uint32_t>(count), drequests);
  if (found.result == mpix::dev::Post::ok && found.index < 0 && found.active >= 0)
    found.result = mpix::dev::in_vain(drequests[found.active]);
  *flag = found.result == mpix::dev::Post::ok && (found.index >= 0 || found.active < 0);
  return mpix::dev::any_told(found, index);
}

/* As MPIX_Test, and as its like, but they wait. */
MPIX_DEV_FN int MPIX_Wait(MPIX_Drequest* drequest, MPI_Status* status) {
  if (!drequest || !mpix::dev::is_ignored(status)) return MPIX_DEV_ARG;
  return mpix::dev::result_of(mpix::dev::wait_for_request(*drequest));
}
MPIX_DEV_FN int MPIX_Waitall(int count, MPIX_Drequest drequests[], MPI_Status statuses[]) {
  if (!mpix::dev::is_list(count, drequests) || !mpix::dev::are_ignored(statuses)) return MPIX_DEV_ARG;
  for (int i = 0; i < count; ++i) {
    const mpix::dev::Post result = mpix::dev::wait_for_request(drequests[i]);
    if (result != mpix::dev::Post::ok) return mpix::dev::result_of(result);
  }
  return MPIX_DEV_DONE;
}
MPIX_DEV_FN int MPIX_Waitany(int count, MPIX_Drequest drequests[], int* index, MPI_Status* status) {
  if (!mpix::dev::is_list(count, drequests) || !index || !mpix::dev::is_ignored(status)) return MPIX_DEV_ARG;
  return mpix::dev::any_told(mpix::dev::wait_for_any(static_cast<std::uint32_t>(count), drequests), index);
}

/* Partitions, for any number of threads, when the request was started and all of them know. Pready: of a send
 * (MPI_Psend_init), each once in each start; published as by MPIX_Start. Parrived: of a receive (MPI_Precv_init);
 * *flag = 1: it is there. */
MPIX_DEV_FN int MPIX_Pready_range(int low, int high, MPIX_Drequest* drequest) {
  return drequest ? mpix::dev::result_of(mpix::dev::set_ready(*drequest, low, high)) : MPIX_DEV_ARG;
}
MPIX_DEV_FN int MPIX_Pready(int partition, MPIX_Drequest* drequest) {
  return MPIX_Pready_range(partition, partition, drequest);
}
MPIX_DEV_FN int MPIX_Parrived(MPIX_Drequest* drequest, int partition, int* flag) {
  if (!drequest || !flag) return MPIX_DEV_ARG;
  bool arrived = false;
  const mpix::dev::Post result = mpix::dev::look_for_partition(*drequest, partition, &arrived);
  *flag = arrived;
  return mpix::dev::result_of(result);
}
