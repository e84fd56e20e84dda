// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "support/channel.h"
#include "support/drequests.h"
#include "support/frame.h"
#include "support/random.h"

/// Messages, and partitions, with data checked: of tests/mpi/drequest.cpp.
namespace {

using SendInit = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

/// Each block has a message to the next rank and one from the rank before: element `at` of step `s` of block `b` of
/// rank `r` is a number that all know.
struct Exchange {
  MPIX_Drequest* requests;  ///< by block: send, receive
  std::uint64_t *out, *in;  ///< by block
  std::uint32_t count;
  std::uint64_t first, steps, seed;
  int rank, source;
  FaultOf fault;

  MPIX_DEV_METHOD std::uint64_t element(int of, unsigned block, std::uint64_t step, std::uint32_t at) const {
    return test::mix(seed + static_cast<std::uint64_t>(of) * 1000003 + block * 10007 + step * 257) + at;
  }
  MPIX_DEV_METHOD int finish(MPIX_Drequest* two, unsigned way) const {
    int flag = 0, index = 0, result = 0;
    switch (way) {
      case 0:
        return MPIX_Waitall(2, two, MPI_STATUSES_IGNORE);
      case 1:
        result = MPIX_Wait(two + 1, MPI_STATUS_IGNORE);
        return result ? result : MPIX_Wait(two, MPI_STATUS_IGNORE);
      case 2:
        while (!flag && result == 0) result = MPIX_Testall(2, two, &flag, MPI_STATUSES_IGNORE);
        return result;
      case 3:
        for (int i = 0; i < 2; ++i) {
          result = MPIX_Waitany(2, two, &index, MPI_STATUS_IGNORE);
          if (result != 0) return result;
          if (index != 0 && index != 1) return 100;
        }
        return MPIX_Waitany(2, two, &index, MPI_STATUS_IGNORE) == 0 && index == MPI_UNDEFINED ? 0 : 101;
      case 4:
        for (int left = 2; left > 0 && result == 0; left -= flag)
          result = MPIX_Testany(2, two, &index, &flag, MPI_STATUS_IGNORE);
        return result;
      default:
        for (int i = 0; i < 2; ++i) {
          flag = 0;
          while (!flag && result == 0) result = MPIX_Test(two + i, &flag, MPI_STATUS_IGNORE);
        }
        return result;
    }
  }
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    MPIX_Drequest* const two = requests + team.block * 2;
    std::uint64_t* const mine = out + std::uint64_t{team.block} * count;
    const std::uint64_t* const other = in + std::uint64_t{team.block} * count;
    for (std::uint64_t s = first; s < first + steps; ++s) {
      const std::uint64_t random = test::mix(seed * 31 + s * 64 + team.block * 7919 + static_cast<std::uint64_t>(rank));
      delay(random);
      for (std::uint32_t at = team.thread; at < count; at += team.threads) mine[at] = element(rank, team.block, s, at);
      MPIX_Dev_sync(team);
      if (team.thread == 0) {
        int result = 0;
        if (random >> 20 & 1) {
          result = MPIX_Startall(2, two);
        } else {
          result = MPIX_Start(two + 1);
          delay(random >> 3);
          if (result == 0) result = MPIX_Start(two);
        }
        WRONG(result != 0, result);
        if (result == 0) {
          result = finish(two, static_cast<unsigned>((random >> 32) % 6));
          WRONG(result != 0, result);
        }
      }
      MPIX_Dev_sync(team);
      if (mpix::load_relaxed(fault.faults + team.block * 2) != 0) return;
      for (std::uint32_t at = team.thread; at < count; at += team.threads)
        WRONG(mpix::load_once(other + at) != element(source, team.block, s, at), s * 100000 + at);
      MPIX_Dev_sync(team);
    }
  }
};

/// The host's own messages meanwhile, persistent ones too.
void exchange_of_host(const std::atomic<bool>& over) {
  std::uint64_t out = 0, in = 0, turns = 0;
  MPI_Request two[2];
  MPI_Comm own;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_SELF, &own));
  CHECK_MPI(MPI_Send_init(&out, 1, MPI_UINT64_T, 0, 3, own, &two[0]));
  CHECK_MPI(MPI_Recv_init(&in, 1, MPI_UINT64_T, 0, 3, own, &two[1]));
  do {
    out = ++turns;
    CHECK_MPI(MPI_Startall(2, two));
    CHECK_MPI(MPI_Waitall(2, two, MPI_STATUSES_IGNORE));
    EXPECT(in == turns);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  } while (!over);
  CHECK_MPI(MPI_Request_free(&two[0]));
  CHECK_MPI(MPI_Request_free(&two[1]));
  CHECK_MPI(MPI_Comm_free(&own));
}

void exchange(std::uint64_t steps) {
#ifdef OPEN_MPI  // its buffered sends change their handles
  const SendInit kinds[] = {MPI_Send_init, MPI_Ssend_init, MPI_Send_init};
#else
  const SendInit kinds[] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init};
#endif
  std::vector<char> attached(std::size_t{64} << 20);
  CHECK_MPI(MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size())));
  const int next = (rank + 1) % ranks, source = (rank + ranks - 1) % ranks;
  const std::uint32_t counts[] = {1, 100, 20000};  // eager, and not
  for (const std::uint32_t count : counts)
    for (const int blocks : {1, 3, 8}) {
      const auto all = static_cast<std::size_t>(blocks) * count;
      std::uint64_t *const out = words(all), *const in = words(all);
      {
        Requests requests;
        for (int b = 0; b < blocks; ++b) {
          const auto at = static_cast<std::size_t>(b) * count;
          MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
          CHECK_MPI(kinds[b % 3](out + at, static_cast<int>(count), MPI_UINT64_T, next, b, MPI_COMM_WORLD, &send));
          CHECK_MPI(MPI_Recv_init(in + at, static_cast<int>(count), MPI_UINT64_T, source, b, MPI_COMM_WORLD, &receive));
          requests.add(send);
          requests.add(receive);
        }
        std::uint64_t first = 0;
        for (int launch = 0; launch < 2; ++launch) {
          const std::uint64_t now = std::max<std::uint64_t>(steps * 100 / (count + 100) / 2, 5);
          const Faults faults(blocks);
          support::launch_blocks(
              Exchange{requests.list(), out, in, count, first, now, 17 + count, rank, source, FaultOf{faults.there()}},
              blocks, 64);
          std::atomic<bool> over{false};
          std::thread host([&] { exchange_of_host(over); });
          faults.expect_none();
          over = true;
          host.join();
          first += now;
        }
      }
      support::release_pinned(out);
      support::release_pinned(in);
    }
  void* buffer = nullptr;
  int size = 0;
  CHECK_MPI(MPI_Buffer_detach(&buffer, &size));
}

#if MPI_VERSION >= 4
/// The first block starts both requests, and the others learn of it by a word of the device; each makes its part of the
/// partitions ready, and sees those of the rank before arrive.
struct Partitions {
  MPIX_Drequest send, receive;
  std::uint64_t *out, *in, *step_of;  ///< the last: of the device; two counters behind it
  std::uint32_t partitions, count;
  std::uint64_t steps;
  int rank, source;
  FaultOf fault;
  MPIX_DEV_METHOD std::uint64_t element(int of, std::uint64_t step, std::uint32_t at) const {
    return test::mix(static_cast<std::uint64_t>(of) * 77 + step) + at;
  }
  MPIX_DEV_METHOD void meet(const MPIX_Dev_team& team, std::uint64_t* counter, std::uint64_t all) const {
    MPIX_Dev_sync(team);
    if (team.thread == 0) {
      mpix::fence_on_device();
      (void)mpix::fetch_add_on_device(counter, 1);
      while (mpix::load_acquire(counter) < all) {
#if !MPIX_ON_DEVICE
        std::this_thread::yield();
#endif
      }
    }
    MPIX_Dev_sync(team);
  }
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    MPIX_Drequest mine = send, other = receive;
    for (std::uint64_t s = 1; s <= steps; ++s) {
      if (team.block == 0 && team.thread == 0) {
        WRONG(MPIX_Start(&other) != 0, s);
        WRONG(MPIX_Start(&mine) != 0, s);
      }
      meet(team, step_of, s * team.blocks);
      const std::uint64_t random = test::mix(s * 100 + team.block * 7 + static_cast<std::uint64_t>(rank));
      delay(random);
      const std::uint32_t each = (partitions + team.blocks - 1) / team.blocks;
      const std::uint32_t low = team.block * each < partitions ? team.block * each : partitions;
      const std::uint32_t end = low + each < partitions ? low + each : partitions;
      for (std::uint32_t at = low * count + team.thread; at < end * count; at += team.threads)
        out[at] = element(rank, s, at);
      MPIX_Dev_sync(team);
      if (team.thread == 0 && low < end) {
        const int first = static_cast<int>(low), last = static_cast<int>(end) - 1;
        if (random >> 40 & 1)
          WRONG(MPIX_Pready_range(first, last, &mine) != 0, s);
        else
          for (int p = last; p >= first; --p) WRONG(MPIX_Pready(p, &mine) != 0, s);
        for (int p = first; p <= last; ++p) {
          int arrived = 0;
          while (!arrived && !WRONG(MPIX_Parrived(&other, p, &arrived) != 0, s)) {
          }
        }
      }
      MPIX_Dev_sync(team);
      for (std::uint32_t at = low * count + team.thread; at < end * count; at += team.threads)
        WRONG(mpix::load_once(in + at) != element(source, s, at), s * 100000 + at);
      meet(team, step_of + 1, s * team.blocks);
      if (team.block == 0 && team.thread == 0) {
        WRONG(MPIX_Wait(&mine, MPI_STATUS_IGNORE) != 0, s);
        WRONG(MPIX_Wait(&other, MPI_STATUS_IGNORE) != 0, s);
        int arrived = 0;
        WRONG(MPIX_Parrived(&other, 0, &arrived) != 0 || !arrived, s);
        WRONG(MPIX_Pready(0, &mine) != MPIX_DEV_ARG, s);
        WRONG(MPIX_Pready(0, &other) != MPIX_DEV_ARG, s);
        WRONG(MPIX_Parrived(&mine, 0, &arrived) != MPIX_DEV_ARG, s);
        WRONG(MPIX_Parrived(&other, static_cast<int>(partitions), &arrived) != MPIX_DEV_ARG, s);
      }
      meet(team, step_of + 2, s * team.blocks);
    }
  }
};

void partitions(std::uint64_t steps) {
  for (const std::uint32_t number : {1u, 5u, 64u})
    for (const std::uint32_t count : {1u, 3000u}) {
      std::uint64_t *const out = words(std::size_t{number} * count), *const in = words(std::size_t{number} * count);
      auto* const meetings = static_cast<std::uint64_t*>(support::allocate_on_device(64));
      const int source = (rank + ranks - 1) % ranks;
      {
        Requests requests;
        MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
        const int n = static_cast<int>(number);
        CHECK_MPI(MPI_Psend_init(out, n, static_cast<MPI_Count>(count), MPI_UINT64_T, (rank + 1) % ranks, 2,
                                 MPI_COMM_WORLD, MPI_INFO_NULL, &send));
        CHECK_MPI(MPI_Precv_init(in, n, static_cast<MPI_Count>(count), MPI_UINT64_T, source, 2, MPI_COMM_WORLD,
                                 MPI_INFO_NULL, &receive));
        requests.add(send);
        requests.add(receive);
        const int blocks = number > 1 ? 4 : 1;
        const Faults faults(blocks);
        support::launch_blocks(Partitions{requests[0], requests[1], out, in, meetings, number, count, steps, rank,
                                          source, FaultOf{faults.there()}},
                               blocks, 64);
        faults.expect_none();
      }
      support::release_on_device(meetings);
      support::release_pinned(out);
      support::release_pinned(in);
    }
}
#else
void partitions(std::uint64_t) { std::printf("this MPI has no partitions\n"); }
#endif

}  // namespace
