// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Device requests, with blocks that are threads or, compiled as CUDA or HIP, those of a kernel:
//
//   mpiexec -n N drequest exchange [STEPS]  around a ring: every kind of send, blocks that start, wait and test in
//                                           every way, with data checked, and random delays; messages of the host
//                                           beside them
//   mpiexec -n N drequest restart [TIMES]   one pair of requests, again and again; launched again, they go on
//   mpiexec -n N drequest many [REQUESTS]   as many at once: started, tested for and waited for together
//   mpiexec -n N drequest any [ROUNDS]      MPIX_Waitany and MPIX_Testany: each gets its turn
//   mpiexec -n N drequest partitions [STEPS]  blocks make partitions ready, and see them arrive
//   mpiexec -n 1 drequest calls             wrong calls, at the host and in kernels; what they say
//   mpiexec -n 1 drequest steady [TIMES]    given out and freed: no more memory, threads or descriptors afterwards
//   mpiexec -n 1 drequest silence           MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error: a receive that nobody sends for
//   mpiexec -n 1 drequest leave             MPI_Finalize with device requests alive
//   mpiexec -n 1 drequest single            without MPI_THREAD_MULTIPLE: the error says what it takes
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "mpi/drequest_exchange.h"
#include "mpi/drequest_wrong.h"
#include "support/channel.h"
#include "support/drequests.h"
#include "support/frame.h"

namespace {

// ---- Restart, many -----------------------------------------------------------------------------------

struct Restart {
  MPIX_Drequest send, receive;
  std::uint64_t *out, *in;
  std::uint64_t first, times;
  FaultOf fault;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    MPIX_Drequest two[2] = {send, receive};
    for (std::uint64_t i = first; i < first + times; ++i) {
      *out = i;
      if (WRONG(MPIX_Startall(2, two) != 0, i) || WRONG(MPIX_Waitall(2, two, MPI_STATUSES_IGNORE) != 0, i)) return;
      if (WRONG(mpix::load_relaxed(in) != i, i)) return;
    }
  }
};

void restart(std::uint64_t times) {
  std::uint64_t* const both = words(64);
  for (const int peer : {(rank + 1) % ranks, MPI_PROC_NULL}) {
    Requests requests;
    MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
    const bool is_null = peer == MPI_PROC_NULL;
    std::uint64_t* const in = is_null ? both : both + 32;  // nobody writes it: what was sent lies there
    CHECK_MPI(MPI_Send_init(both, 1, MPI_UINT64_T, peer, 1, MPI_COMM_WORLD, &send));
    CHECK_MPI(
        MPI_Recv_init(in, 1, MPI_UINT64_T, is_null ? peer : (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, &receive));
    requests.add(send);
    requests.add(receive);
    const std::uint64_t launches = 4;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t launch = 0; launch < launches; ++launch) {
      const Faults faults(1);
      support::launch_blocks(Restart{requests[0], requests[1], both, in, launch * (times / launches), times / launches,
                                     FaultOf{faults.there()}},
                             1, 1);
      faults.expect_none();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (rank == 0)
      std::printf("%s: %.2f us a turn\n", is_null ? "nobody" : "ring", took.count() * 1e6 / static_cast<double>(times));
  }
  support::release_pinned(both);
}

struct Many {
  MPIX_Drequest* requests;  ///< sends, then receives
  std::uint64_t *out, *in;
  int each, steps;
  FaultOf fault;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    for (int s = 0; s < steps; ++s) {
      for (int i = static_cast<int>(team.thread); i < each; i += static_cast<int>(team.threads))
        out[i] = static_cast<std::uint64_t>(s * each + i);
      MPIX_Dev_sync(team);
      if (team.thread == 0) {
        WRONG(MPIX_Startall(2 * each, requests) != 0, s);
        int index = 0, flag = 0;
        if (s % 3 == 0) {
          WRONG(MPIX_Waitall(2 * each, requests, MPI_STATUSES_IGNORE) != 0, s);
        } else if (s % 3 == 1) {
          while (!flag && !WRONG(MPIX_Testall(2 * each, requests, &flag, MPI_STATUSES_IGNORE) != 0, s)) {
          }
        } else {
          for (int i = 0; i < 2 * each; ++i)
            if (WRONG(MPIX_Waitany(2 * each, requests, &index, MPI_STATUS_IGNORE) != 0, s) || WRONG(index < 0, s))
              break;
          WRONG(MPIX_Testany(2 * each, requests, &index, &flag, MPI_STATUS_IGNORE) != 0, s);
          WRONG(index != MPI_UNDEFINED || flag != 1, s);
        }
      }
      MPIX_Dev_sync(team);
      for (int i = static_cast<int>(team.thread); i < each; i += static_cast<int>(team.threads))
        WRONG(mpix::load_once(in + i) != static_cast<std::uint64_t>(s * each + i), i);
      MPIX_Dev_sync(team);
    }
  }
};

void many(int each) {
  const auto count = static_cast<std::size_t>(each);
  std::uint64_t *const out = words(count), *const in = words(count);
  {
    Requests requests;
    for (int i = 0; i < each; ++i) {
      MPI_Request send = MPI_REQUEST_NULL;
      CHECK_MPI(MPI_Send_init(out + i, 1, MPI_UINT64_T, (rank + 1) % ranks, i, MPI_COMM_WORLD, &send));
      requests.add(send);
    }
    for (int i = 0; i < each; ++i) {
      MPI_Request receive = MPI_REQUEST_NULL;
      CHECK_MPI(MPI_Recv_init(in + i, 1, MPI_UINT64_T, (rank + ranks - 1) % ranks, i, MPI_COMM_WORLD, &receive));
      requests.add(receive);
    }
    const Faults faults(1);
    support::launch_blocks(Many{requests.list(), out, in, each, 9, FaultOf{faults.there()}}, 1, 128);
    faults.expect_none();
  }
  support::release_pinned(out);
  support::release_pinned(in);
}

// ---- Any ---------------------------------------------------------------------------------------------

/// Some are complete as soon as they are started, and are started again at once: the others get their turn.
struct Any {
  MPIX_Drequest* requests;
  int count, rounds;
  bool waits;
  std::uint64_t* turns;  ///< by request
  FaultOf fault;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0 || WRONG(MPIX_Startall(count, requests) != 0, 0)) return;
    for (int r = 0; r < rounds; ++r) {
      int index = -1, flag = 0;
      int result = 0;
      if (waits)
        result = MPIX_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
      else
        while (!flag && result == 0) result = MPIX_Testany(count, requests, &index, &flag, MPI_STATUS_IGNORE);
      if (WRONG(result != 0, result) || WRONG(index < 0 || index >= count, index)) return;
      ++turns[index];
      if (WRONG(MPIX_Start(requests + index) != 0, index)) return;
    }
    WRONG(MPIX_Waitall(count, requests, MPI_STATUSES_IGNORE) != 0, 0);
  }
};

void any(int rounds) {
  constexpr int count = 5;
  std::uint64_t word = 0;
  for (const bool waits : {true, false}) {
    Requests requests;
    for (int i = 0; i < count; ++i) {
      MPI_Request send = MPI_REQUEST_NULL;
      CHECK_MPI(MPI_Send_init(&word, 1, MPI_UINT64_T, MPI_PROC_NULL, i, MPI_COMM_WORLD, &send));
      requests.add(send);
    }
    auto* const turns = static_cast<std::uint64_t*>(support::allocate_on_device(count * 8));
    const Faults faults(1);
    support::launch_blocks(Any{requests.list(), count, rounds, waits, turns, FaultOf{faults.there()}}, 1, 1);
    faults.expect_none();
    std::uint64_t found[count];
    support::to_host(found, turns, sizeof found);
    for (const std::uint64_t one : found) {
      EXPECT(one >= static_cast<std::uint64_t>(rounds) / count / 4);
      EXPECT(one <= static_cast<std::uint64_t>(rounds) / count * 2 + 2);
    }
    support::release_on_device(turns);
  }
}

// ---- Steady, leave -----------------------------------------------------------------------------------

void steady(int times) {
  auto* const result = static_cast<int*>(support::allocate_on_device(16));
  std::uint64_t* const word = words(1);
  Holdings held;
  for (int i = 0; i < times; ++i) {
    Requests requests;
    MPI_Request send = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Send_init(word, 1, MPI_UINT64_T, MPI_PROC_NULL, 0, MPI_COMM_SELF, &send));
    requests.add(send);
    support::launch_blocks(WaitForEver{requests[0], result}, 1, 1);
    support::synchronize();
    if (i == times / 5) held = Holdings::now();
  }
  held.expect_no_more();
  support::release_pinned(word);
  support::release_on_device(result);
}

/// The kernel runs while MPI ends.
void leave() {
  static auto* const result = static_cast<int*>(support::allocate_on_device(16));
  MPI_Request receive = MPI_REQUEST_NULL;
  MPIX_Drequest given;
  CHECK_MPI(MPI_Recv_init(words(1), 1, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &receive));
  CHECK_MPI(MPIX_Get_drequest(receive, &given));
  std::uint64_t* const started = words(1);
  *started = 0;
  support::launch_blocks(WaitForEver{given, result, started}, 1, 1);
  wait_until_told(started);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  const std::string what = argc > 1 ? argv[1] : "";
  const bool is_single = what == "single";
  CHECK_MPI(MPI_Init_thread(&argc, &argv, is_single ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const std::uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (what == "exchange") {
    exchange(number ? number : 200);
  } else if (what == "restart") {
    restart(number ? number : 20000);
  } else if (what == "many") {
    many(number ? static_cast<int>(number) : 500);
  } else if (what == "any") {
    any(number ? static_cast<int>(number) : 2000);
  } else if (what == "partitions") {
    partitions(number ? number : 50);
  } else if (what == "calls") {
    wrong_at_the_host();
    wrong_in_kernels();
#ifndef OPEN_MPI  // which tells nobody that a persistent receive was too short
    broken(false);
#endif
  } else if (what == "steady") {
    steady(number ? static_cast<int>(number) : 1000);
  } else if (what == "silence") {
    broken(true);
  } else if (what == "leave") {
    leave();
  } else if (is_single) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPIX_Drequest given;
    int word = 0;
    CHECK_MPI(MPI_Recv_init(&word, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request));
    EXPECT_ERROR(MPIX_Get_drequest(request, &given), MPI_ERR_UNSUPPORTED_OPERATION, "MPIX_CHANNEL_THREAD=on");
    CHECK_MPI(MPI_Request_free(&request));
  } else {
    std::fprintf(stderr, "drequest exchange|restart|many|any|partitions|calls|steady|silence|leave|single\n");
    ++failures;
  }
  CHECK_MPI(MPI_Finalize());
  if (failures == 0) std::printf("drequest %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
