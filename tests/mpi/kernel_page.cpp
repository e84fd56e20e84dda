// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// A program for HPE Cray MPICH, in all that its page of MPIX_Start shows: what it includes for kernels, handles that
// kernels get by value, MPIX_Start with a handle, MPIX_Test with its address, one buffer for both ways, and a host that
// asks for the end by an event. It compiles with libmpix's header under the name of theirs, and the data are checked.
//
//   mpiexec -n 2 kernel_page [TURNS]
#include <mpi.h>
#include <mpi_kt.h>
#include <mpix.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "support/channel.h"
#include "support/streams.h"

#if !defined(__CUDACC__) && !defined(__HIPCC__)
#define __global__  // a function that a thread of the library calls
#endif

namespace {

__global__ void ping_pong(MPIX_Drequest send_drequest, MPIX_Drequest recv_drequest, int rank, int* data, int num_iter,
                          int* wrong) {
  MPIX_Drequest first = rank == 0 ? send_drequest : recv_drequest;
  MPIX_Drequest second = rank == 0 ? recv_drequest : send_drequest;
  for (int i = 1; i <= num_iter; ++i) {
    if (rank == 0) data[0] = i;
    MPIX_Start(first);
    int flag = 0;
    while (!flag) MPIX_Test(&first, &flag, MPI_STATUS_IGNORE);
    if (rank == 1) {
      if (data[0] != i) ++*wrong;
      data[0] = -i;
    }
    MPIX_Start(second);
    flag = 0;
    while (!flag) MPIX_Test(&second, &flag, MPI_STATUS_IGNORE);
    if (rank == 0 && data[0] != -i) ++*wrong;
  }
}

#if defined(__CUDACC__) || defined(__HIPCC__)
template <class... Arguments>
void launch_one(support::Stream& stream, Arguments... arguments) {
  ping_pong<<<1, 1, 0, static_cast<DOMAIN_GPU(Stream_t)>(stream.handle())>>>(arguments...);
  DOMAIN_CHECK_GPU(DOMAIN_GPU(GetLastError)());
}
#else
template <class... Arguments>
void launch_one(support::Stream& stream, Arguments... arguments) {
  auto* const call = new std::function<void()>([=] { ping_pong(arguments...); });
  const auto run = [](void* given) {
    auto* const mine = static_cast<std::function<void()>*>(given);
    (*mine)();
    delete mine;
  };
  CHECK_MPI(MPIX_Host_stream_launch(static_cast<MPIX_Host_stream>(stream.handle()), run, call));
}
#endif

int exchange(int rank, int num_iter) {
  constexpr int num_bytes = 4096;
  auto* const data = static_cast<int*>(support::allocate_pinned(num_bytes));
  auto* const wrong = static_cast<int*>(support::allocate_pinned(sizeof(int)));
  MPI_Request send_request, recv_request;
  MPIX_Drequest send_drequest, recv_drequest;
  CHECK_MPI(MPI_Send_init(data, num_bytes, MPI_BYTE, 1 - rank, 999, MPI_COMM_WORLD, &send_request));
  CHECK_MPI(MPI_Recv_init(data, num_bytes, MPI_BYTE, 1 - rank, 999, MPI_COMM_WORLD, &recv_request));
  CHECK_MPI(MPIX_Get_drequest(send_request, &send_drequest));
  CHECK_MPI(MPIX_Get_drequest(recv_request, &recv_drequest));
  {
    support::Stream stream;
    support::Event event;
    const double begin = MPI_Wtime();
    launch_one(stream, send_drequest, recv_drequest, rank, data, num_iter, wrong);
    event.record(stream);
    // The page looks all the time; where threads are blocks those need the cores.
    while (!event.is_over()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::printf("[%d] latency = %f us\n", rank, 1e6 * (MPI_Wtime() - begin) / (2.0 * num_iter));
  }
  CHECK_MPI(MPIX_Free_drequest(&send_drequest));
  CHECK_MPI(MPIX_Free_drequest(&recv_drequest));
  CHECK_MPI(MPI_Request_free(&send_request));
  CHECK_MPI(MPI_Request_free(&recv_request));
  int found = *wrong;
  if (data[0] != -num_iter) ++found;  // as both have it in the end
  support::release_pinned(wrong);
  support::release_pinned(data);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, ranks = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  if (ranks != 2) {
    if (rank == 0) std::fprintf(stderr, "kernel_page needs 2 ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int wrong = exchange(rank, argc > 1 ? std::atoi(argv[1]) : 2000);
  if (wrong > 0) std::printf("[%d] %d are wrong\n", rank, wrong);
  CHECK_MPI(MPI_Finalize());
  return wrong == 0 ? 0 : 1;
}
