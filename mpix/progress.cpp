// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "progress.h"

#include "base/service.h"
#include "errors.h"
#include "runtime.h"

namespace mpix {
namespace {

int query(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int free(void*) { return MPI_SUCCESS; }
int cancel(void*, int) { return MPI_SUCCESS; }

/// Whether no other thread of the program can be in MPI now, or several may be.
bool may_call_mpi(Progress::Call call) {
  if (!mpi_works()) return false;
  const int level = threads_of_mpi();
  if (level == MPI_THREAD_MULTIPLE || call == Progress::Call::of_mpi) return true;
  int is_main = 0;
  return mpi_is_up() && PMPI_Is_thread_main(&is_main) == MPI_SUCCESS && is_main && level <= MPI_THREAD_FUNNELED;
}

}  // namespace

Progress::~Progress() {
  if (never_ == MPI_REQUEST_NULL) return;
  PMPI_Grequest_complete(never_);
  PMPI_Wait(&never_, MPI_STATUS_IGNORE);
}

std::function<void()> Progress::meanwhile() {
  if (!may_call_mpi(call_)) return nullptr;
  return [this] { make(); };
}

void Progress::make() {
  if (never_ == MPI_REQUEST_NULL && PMPI_Grequest_start(&query, &free, &cancel, nullptr, &never_) != MPI_SUCCESS)
    return;
  int over = 0;
  PMPI_Test(&never_, &over, MPI_STATUS_IGNORE);
  stand_in_for_service();
}

}  // namespace mpix
