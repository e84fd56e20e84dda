// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
//   mpiexec -n 2 left_halo   MPI_Finalize with a halo that was not freed: what kernels have packed is sent all the same
//
// That rank 0 is in MPI_Finalize before the library has sent anything takes a service that is late: this program is, by
// calls of MPI that it makes last.
#include <dlfcn.h>

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

/// Of one message with two halves there are four requests, of two messages eight.
bool is_first(int count) { return count == 4; }

void be_late(int count) {
  static bool has_waited = false;  // in the one thread that calls
  int due = 1;
  if (is_first(count) && late == 2 && !std::exchange(has_waited, true)) wait_for(is_launched);
  if (!is_first(count) && late.compare_exchange_strong(due, 0)) wait_for(is_finalizing);
}

/// Receives are behind the sends. Without one the program is not at its end.
void note_receive(int count, int some, const int* indices) {
  for (int i = 0; i < some; ++i)
    if (is_first(count) && late == 2 && indices[i] >= 2) late = 1;
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

extern "C" __attribute__((visibility("default"))) int PMPI_Testsome(int count, MPI_Request* requests, int* some,
                                                                    int* indices, MPI_Status* statuses) {
  be_late(count);
  static const auto real = reinterpret_cast<decltype(&PMPI_Testsome)>(dlsym(RTLD_NEXT, "PMPI_Testsome"));
  const int code = real(count, requests, some, indices, statuses);
  if (code == MPI_SUCCESS) note_receive(count, *some, indices);
  return code;
}

int main(int argc, char** argv) {
  const int code = run_case(argc, argv, {{"leave", leave}});
  // The second call may come when all is over, on a machine that is busy; the first one comes, or the library makes
  // others.
  if (late != 0) std::printf("the library was not late\n");
  return late == 2 ? 1 : code;
}
