// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
//   mpiexec -n 2 left_halo   MPI_Finalize with a halo that was not freed: what kernels have packed is sent all the same
//
// That rank 0 is in MPI_Finalize before the library has sent anything takes a service that is late: this program is, by
// calls of MPI that it makes last.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "support/halo_cube.h"

namespace {

constexpr int others = 4;  ///< halos of which one is looked at behind the first
/// What is late next: 2: the call in which the first halo receives; 1: then, one of another.
std::atomic<int> late{0};
std::atomic<bool> is_launched{false}, is_finalizing{false};

void wait_for(const std::atomic<bool>& sign) {
  while (!sign) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

/// Of its message, which are the first that the library makes.
MPI_Request first_send = MPI_REQUEST_NULL, first_receive = MPI_REQUEST_NULL;

bool has_first(int count, const MPI_Request* requests) {
  return std::any_of(requests, requests + count,
                     [](MPI_Request one) { return one == first_send || one == first_receive; });
}

void be_late(bool is_first) {
  static bool has_waited = false;  // in the one thread that calls
  int due = 1;
  if (is_first && late == 2 && !std::exchange(has_waited, true)) wait_for(is_launched);
  if (!is_first && late.compare_exchange_strong(due, 0)) wait_for(is_finalizing);
}

MPIX_Halo halo_of(int messages, const MPIX_Halo_message* all) {
  MPIX_Halo halo = MPIX_HALO_NULL;
  MPIX_Dev_halo for_kernels;
  CHECK_MPI(MPIX_Halo_create(MPI_COMM_WORLD, messages, all, Info(Keys{{"mpix_route", "mpi"}}), &halo));
  CHECK_MPI(MPIX_Halo_get_device(halo, &for_kernels));  // the library looks from now on
  return halo;
}

void leave(int) {
  constexpr long words = 16;
  auto* const data = static_cast<std::uint64_t*>(support::allocate_on_device(2 * words * sizeof(std::uint64_t)));
  const std::uint64_t out = 1000 + static_cast<std::uint64_t>(rank);
  for (long i = 0; i < words; ++i) support::from_host(data + i, &out, sizeof out);
  const MPIX_Box from{data, 8, 1, {words, 0, 0}, {8, 0, 0}, 1, 0},
      to{data + words, 8, 1, {words, 0, 0}, {8, 0, 0}, 1, 0};
  const MPIX_Halo_message first{1 - rank, 1, 1, 1, 1, &from, &to};
  const MPIX_Halo_message two[] = {{1 - rank, 2, 2, 1, 1, &from, &to}, {1 - rank, 3, 3, 1, 1, &from, &to}};
  const MPIX_Halo halo = halo_of(1, &first);
  for (int i = 0; i < others; ++i) (void)halo_of(2, two);
  if (rank == 0) {
    late = 2;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
    is_launched = true;
  } else {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPIX_Halo_exchange_stream(halo, nullptr));
  }
  support::synchronize();
  std::uint64_t in = 0;
  for (long i = 0; i < words; ++i) {
    support::to_host(&in, data + words + i, sizeof in);
    EXPECT(in == 1000 + static_cast<std::uint64_t>(1 - rank));
  }
  is_finalizing = true;
}

}  // namespace

#define INTERPOSED extern "C" __attribute__((visibility("default"))) int
template <class Call>
Call* real(Call* call, const char* name) {
  (void)call;
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

INTERPOSED PMPI_Send_init(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                          MPI_Request* request) {
  const int code = real(PMPI_Send_init, "PMPI_Send_init")(from, count, type, to, tag, comm, request);
  if (first_send == MPI_REQUEST_NULL) first_send = *request;
  return code;
}
INTERPOSED PMPI_Recv_init(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                          MPI_Request* request) {
  const int code = real(PMPI_Recv_init, "PMPI_Recv_init")(to, count, type, from, tag, comm, request);
  if (first_receive == MPI_REQUEST_NULL) first_receive = *request;
  return code;
}
INTERPOSED PMPI_Testsome(int count, MPI_Request* requests, int* some, int* indices, MPI_Status* statuses) {
  const bool is_first = has_first(count, requests);
  be_late(is_first);
  const int code = real(PMPI_Testsome, "PMPI_Testsome")(count, requests, some, indices, statuses);
  // Without what it receives the program is not at its end.
  for (int i = 0; code == MPI_SUCCESS && i < *some; ++i)
    if (is_first && late == 2 && requests[indices[i]] == first_receive) late = 1;
  return code;
}

/// Short messages that go together.
INTERPOSED PMPI_Test(MPI_Request* request, int* over, MPI_Status* status) {
  be_late(false);
  return real(PMPI_Test, "PMPI_Test")(request, over, status);
}

int main(int argc, char** argv) {
  const int code = run_case(argc, argv, {{"leave", leave}});
  // The second call may come when all is over, on a machine that is busy; the first one comes, or the library makes
  // others.
  if (late != 0) std::printf("the library was not late\n");
  return late == 2 ? 1 : code;
}
