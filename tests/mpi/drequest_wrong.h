// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "support/channel.h"
#include "support/child.h"
#include "support/drequests.h"
#include "support/frame.h"
#include "support/random.h"

/// Wrong calls, broken requests: of tests/mpi/drequest.cpp.
namespace {

struct WrongUse {
  MPIX_Drequest send, receive, old;
  int* results;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team&) const {
    MPIX_Drequest none{}, two[2] = {send, receive}, gone = old, none_too[2] = {none, none};
    MPI_Status status;
    int flag = 7, index = 7, n = 0;
    results[n++] = MPIX_Start(static_cast<MPIX_Drequest*>(nullptr));
    results[n++] = MPIX_Start(none);
    results[n++] = MPIX_Wait(&two[0], &status);
    results[n++] = MPIX_Startall(-1, two);
    results[n++] = MPIX_Waitall(2, nullptr, MPI_STATUSES_IGNORE);
    results[n++] = MPIX_Test(&two[0], nullptr, MPI_STATUS_IGNORE);
    results[n++] = MPIX_Pready(0, &two[0]);           // no partitions
    results[n++] = MPIX_Parrived(&two[1], 0, &flag);  // likewise
    results[n++] = MPIX_Start(&gone) * 100;           // 200
    results[n++] = MPIX_Wait(&gone, MPI_STATUS_IGNORE) * 100;
    results[n++] = MPIX_Waitall(0, nullptr, MPI_STATUSES_IGNORE);
    results[n++] = MPIX_Wait(&none, MPI_STATUS_IGNORE);
    results[n++] = MPIX_Test(&two[0], &flag, MPI_STATUS_IGNORE) * 10 + flag;  // inactive: 1
    results[n++] = MPIX_Waitany(2, none_too, &index, MPI_STATUS_IGNORE) * 10 + (index == MPI_UNDEFINED);
    results[n++] = MPIX_Start(&two[1]);
    results[n++] = MPIX_Start(&two[1]) * 10;                                  // active: 40
    results[n++] = MPIX_Test(&two[1], &flag, MPI_STATUS_IGNORE) * 10 + flag;  // 0
    results[n++] = MPIX_Startall(2, two) * 10;                                // 40, and none is started
    results[n++] = MPIX_Test(&two[0], &flag, MPI_STATUS_IGNORE) * 10 + flag;  // 1
    results[n++] = MPIX_Start(&two[0]);
    results[n++] = MPIX_Waitall(2, two, MPI_STATUSES_IGNORE);
    results[n++] = MPIX_Waitall(2, two, MPI_STATUSES_IGNORE);
    results[n++] = MPIX_Testany(2, two, &index, &flag, MPI_STATUS_IGNORE) * 10 + flag + (index == MPI_UNDEFINED);  // 2
    results[n] = n;
  }
};

void wrong_in_kernels() {
  const int a = MPIX_DEV_ARG,
            expected[] = {a, a, a, a, a, a, a, a, 200, 200, 0, 0, 1, 1, 0, 40, 0, 40, 1, 0, 0, 0, 2, 23};
  auto* const results = static_cast<int*>(support::allocate_on_device(sizeof expected));
  std::uint64_t* const both = words(2);
  {
    Requests requests;
    MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
    MPIX_Drequest old, freed;
    CHECK_MPI(MPI_Send_init(both, 1, MPI_UINT64_T, 0, 5, MPI_COMM_SELF, &other));
    CHECK_MPI(MPIX_Get_drequest(other, &old));
    freed = old;
    CHECK_MPI(MPIX_Free_drequest(&freed));
    EXPECT(freed.state == nullptr);
    CHECK_MPI(MPI_Send_init(both, 1, MPI_UINT64_T, 0, 4, MPI_COMM_SELF, &send));
    CHECK_MPI(MPI_Recv_init(both + 1, 1, MPI_UINT64_T, 0, 4, MPI_COMM_SELF, &receive));
    requests.add(send);
    requests.add(receive);
    support::launch_blocks(WrongUse{requests[0], requests[1], old, results}, 1, 1);
    support::synchronize();
    expect_results("wrong use", results, {std::begin(expected), std::end(expected)});
    CHECK_MPI(MPI_Request_free(&other));
  }
  support::release_pinned(both);
  support::release_on_device(results);
}

void wrong_in_a_child(MPIX_Drequest given) {
#if !defined(__CUDACC__) && !defined(__HIPCC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT(status_of_child([&] {
           alarm(30);
           return MPIX_Free_drequest(&given) == MPI_ERR_UNSUPPORTED_OPERATION ? 0 : 2;
         }) == 0);
#else
  (void)given;
#endif
}

void wrong_at_the_host() {
  std::uint64_t word = 0, other = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPIX_Drequest given{}, second{};
  EXPECT_ERROR(MPIX_Get_drequest(MPI_REQUEST_NULL, &given), MPI_ERR_REQUEST, "MPI_REQUEST_NULL");
  CHECK_MPI(MPI_Irecv(&word, 1, MPI_UINT64_T, 0, 1, MPI_COMM_SELF, &request));
  EXPECT_ERROR(MPIX_Get_drequest(request, &given), MPI_ERR_REQUEST, "MPI_Send_init");
  CHECK_MPI(MPI_Send(&other, 1, MPI_UINT64_T, 0, 1, MPI_COMM_SELF));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));

  CHECK_MPI(MPI_Recv_init(&word, 1, MPI_UINT64_T, 0, 1, MPI_COMM_SELF, &request));
  EXPECT_ERROR(MPIX_Get_drequest(request, nullptr), MPI_ERR_ARG, "no place");
  CHECK_MPI(MPI_Start(&request));
  EXPECT_ERROR(MPIX_Get_drequest(request, &given), MPI_ERR_REQUEST, "active: receive from rank 0, tag 1");
  CHECK_MPI(MPI_Send(&other, 1, MPI_UINT64_T, 0, 1, MPI_COMM_SELF));
  int flag = 0;
  while (!flag) CHECK_MPI(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
  EXPECT_ERROR(MPIX_Get_drequest(request, &given), MPI_ERR_REQUEST, "active");  // complete, and nobody has waited
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPIX_Get_drequest(request, &given));
  EXPECT_ERROR(MPIX_Get_drequest(request, &second), MPI_ERR_REQUEST, "has a device request already");
  EXPECT(second.state == nullptr);
  MPI_Request same = request;
  EXPECT_ERROR(MPI_Request_free(&same), MPI_ERR_REQUEST, "MPIX_Free_drequest first");
  wrong_in_a_child(given);
  second = given;
  CHECK_MPI(MPIX_Free_drequest(&second));
  EXPECT_ERROR(MPIX_Free_drequest(&second), MPI_ERR_REQUEST, "was freed");
  EXPECT_ERROR(MPIX_Free_drequest(&given), MPI_ERR_REQUEST, "was freed");
  EXPECT_ERROR(MPIX_Free_drequest(nullptr), MPI_ERR_ARG, "no device request");
  CHECK_MPI(MPIX_Get_drequest(request, &given));  // another time
  CHECK_MPI(MPIX_Free_drequest(&given));
  same = request;
  CHECK_MPI(MPI_Request_free(&request));
  EXPECT_ERROR(MPIX_Get_drequest(same, &given), MPI_ERR_REQUEST, "was freed");
}

struct WaitForEver {
  MPIX_Drequest request;
  int* result;
  std::uint64_t* started = nullptr;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    MPIX_Drequest mine = request;
    result[0] = MPIX_Start(&mine);
    if (started) tell(started);
    result[1] = MPIX_Wait(&mine, MPI_STATUS_IGNORE);
  }
};

/// MPI finds that what has come is too long: kernels are released, until all device requests are freed. `way`: none
/// comes, and the report of MPIX_TIMEOUT ends the wait.
void broken(bool by_silence) {
  auto* const result = static_cast<int*>(support::allocate_on_device(16));
  std::uint64_t *const in = words(1), *const in_too = words(1), *const started = words(1);
  const char* const why =
      by_silence ? "block 0 waits: device request 0 (receive from rank 0, tag 6) was started by a kernel, and MPI "
                   "has not completed it"
                 : "of device request 0 (receive from rank 0, tag 6) has failed";
  MPI_Comm comm;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_SELF, &comm));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MPI_Request request = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
  MPIX_Drequest given, given_too;
  CHECK_MPI(MPI_Recv_init(in, 1, MPI_UINT64_T, 0, 6, comm, &request));
  CHECK_MPI(MPI_Recv_init(in_too, 1, MPI_UINT64_T, 0, 7, comm, &other));
  CHECK_MPI(MPIX_Get_drequest(request, &given));
  *started = 0;
  support::launch_blocks(WaitForEver{given, result, started}, 1, 1);
  wait_until_told(started);
  EXPECT_ERROR(MPIX_Free_drequest(&given), MPI_ERR_OTHER, "device request 0 (receive from rank 0, tag 6) is active");
  const std::uint64_t out[3] = {1, 2, 3};
  if (!by_silence) CHECK_MPI(MPI_Send(out, 3, MPI_UINT64_T, 0, 6, comm));
  support::synchronize();
  int found[2];
  support::to_host(found, result, sizeof found);
  EXPECT(found[0] == 0);
  EXPECT(found[1] == MPIX_DEV_RELEASED);
  EXPECT_ERROR(MPIX_Get_drequest(other, &given_too), MPI_ERR_OTHER, why);
  CHECK_MPI(MPIX_Free_drequest(&given));
  CHECK_MPI(MPIX_Get_drequest(other, &given_too));  // whole again
  support::launch_blocks(WaitForEver{given_too, result}, 1, 1);
  CHECK_MPI(MPI_Send(out, 1, MPI_UINT64_T, 0, 7, comm));
  support::synchronize();
  support::to_host(found, result, sizeof found);
  EXPECT(found[0] == 0);
  EXPECT(found[1] == 0);
  EXPECT(*in_too == 1);
  CHECK_MPI(MPIX_Free_drequest(&given_too));
  CHECK_MPI(MPI_Request_free(&other));
  if (by_silence) {
    CHECK_MPI(MPI_Cancel(&request));
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  CHECK_MPI(MPI_Request_free(&request));
  CHECK_MPI(MPI_Comm_free(&comm));
  support::release_on_device(result);
  support::release_pinned(in);
  support::release_pinned(in_too);
  support::release_pinned(started);
}

}  // namespace
