// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Device requests, with blocks that are threads or, compiled as CUDA or HIP, those of a kernel:
//
//   mpiexec -n N drequest exchange [STEPS]  around a ring: every kind of send, blocks that start, wait and test in
//   every
//                                           way, with data checked, and random delays; messages of the host beside them
//   mpiexec -n N drequest restart [TIMES]   one pair of requests, again and again; launched again, they go on
//   mpiexec -n N drequest many [REQUESTS]   as many at once: started, tested for and waited for together
//   mpiexec -n N drequest any [ROUNDS]      MPIX_Waitany and MPIX_Testany: each gets its turn
//   mpiexec -n 2 drequest pages [TURNS]     HPE's example of MPIX_Start, with libmpix's header
//   mpiexec -n N drequest partitions [STEPS]  blocks make partitions ready, and see them arrive
//   mpiexec -n 1 drequest calls             wrong calls, at the host and in kernels; what they say
//   mpiexec -n 1 drequest steady [TIMES]    given out and freed: no more memory, threads or descriptors afterwards
//   mpiexec -n 1 drequest silence           MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error: a receive that nobody sends for
//   mpiexec -n 1 drequest leave             MPI_Finalize with device requests alive
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

#include "support/channel.h"
#include "support/random.h"

namespace {

int failures = 0, ranks = 1, rank = 0;

#define EXPECT(holds)                                                            \
  do {                                                                           \
    if (!(holds)) {                                                              \
      std::printf("%s:%d: %d: expected %s\n", __FILE__, __LINE__, rank, #holds); \
      if (++failures > 20) std::abort();                                         \
    }                                                                            \
  } while (false)

void expect_error(int line, int code, int error_class, const char* part) {
  int found = MPI_SUCCESS, length = 0;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  if (code != MPI_SUCCESS) {
    MPI_Error_class(code, &found);
    MPI_Error_string(code, text, &length);
  }
  if (found == error_class && std::strstr(text, part)) return;
  std::printf("line %d: class %d instead of %d, or no '%s' in: %s\n", line, found, error_class, part, text);
  ++failures;
}
#define EXPECT_ERROR(call, error_class, part) expect_error(__LINE__, call, error_class, part)

/// Waits for the kernel, and looks at what its blocks have found wrong: by block: line, what.
class Faults {
 public:
  explicit Faults(int blocks)
      : blocks_(static_cast<std::size_t>(blocks)),
        there_(static_cast<std::uint64_t*>(support::allocate_on_device(blocks_ * 16))) {}
  ~Faults() { support::release_on_device(there_); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  std::uint64_t* there() const { return there_; }
  void expect_none() const {
    support::synchronize();
    std::vector<std::uint64_t> found(blocks_ * 2);
    support::to_host(found.data(), there_, found.size() * 8);
    for (std::size_t b = 0; b < blocks_; ++b)
      if (found[b * 2] != 0) {
        std::printf("rank %d, block %zu: line %llu: %llu\n", rank, b, static_cast<unsigned long long>(found[b * 2]),
                    static_cast<unsigned long long>(found[b * 2 + 1]));
        ++failures;
      }
  }

 private:
  const std::size_t blocks_;
  std::uint64_t* const there_;
};

struct FaultOf {
  std::uint64_t* faults;
  MPIX_DEV_METHOD bool operator()(const MPIX_Dev_team& team, bool is_wrong, int line, std::uint64_t what) const {
    std::uint64_t* const mine = faults + team.block * 2;
    if (is_wrong && mine[0] == 0) {
      mine[0] = static_cast<std::uint64_t>(line);
      mine[1] = what;
    }
    return is_wrong;
  }
};
#define WRONG(is_wrong, what) fault(team, is_wrong, __LINE__, static_cast<std::uint64_t>(what))

MPIX_DEV_METHOD inline void delay(std::uint64_t random) {
  if (random % 4 != 0) return;
  const unsigned long long until = MPIX_Dev_clock() + (random >> 8) % 30000;
  while (MPIX_Dev_clock() < until) {
  }
}

/// Persistent requests with their device requests, and pinned buffers.
class Requests {
 public:
  ~Requests() {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      CHECK_MPI(MPIX_Free_drequest(&given_[i]));
      CHECK_MPI(MPI_Request_free(&made_[i]));
    }
    if (there_) support::release_on_device(there_);
  }
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  void add(MPI_Request request) {
    MPIX_Drequest given;
    CHECK_MPI(MPIX_Get_drequest(request, &given));
    made_.push_back(request);
    given_.push_back(given);
  }
  /// In memory of the device.
  MPIX_Drequest* list() {
    const std::size_t bytes = given_.size() * sizeof given_[0];
    if (!there_) there_ = static_cast<MPIX_Drequest*>(support::allocate_on_device(bytes));
    support::from_host(there_, given_.data(), bytes);
    return there_;
  }
  MPIX_Drequest operator[](std::size_t i) const { return given_[i]; }
  std::size_t size() const { return given_.size(); }

 private:
  std::vector<MPI_Request> made_;
  std::vector<MPIX_Drequest> given_;
  MPIX_Drequest* there_ = nullptr;
};

std::uint64_t* words(std::size_t count) {
  return static_cast<std::uint64_t*>(support::allocate_pinned(count * sizeof(std::uint64_t)));
}

using SendInit = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

// ---- Exchange ----------------------------------------------------------------------------------------

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

// ---- The example of HPE's pages ----------------------------------------------------------------------

/// As in the manual page of MPIX_Start: handles by value, MPIX_Start with a handle, MPIX_Test with its address.
struct Page {
  MPIX_Drequest send_drequest, recv_drequest;
  int rank;
  int* data;
  int num_iter;
  std::uint64_t* bad;
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team&) const {
    int flag = 0;
    MPIX_Drequest dreq1, dreq2;
    if (rank == 0) {
      dreq1 = send_drequest;
      dreq2 = recv_drequest;
    } else {
      dreq1 = recv_drequest;
      dreq2 = send_drequest;
    }
    for (int i = 0; i < num_iter; ++i) {
      if (rank == 0) data[0] = i;
      MPIX_Start(dreq1);
      flag = 0;
      while (!flag) MPIX_Test(&dreq1, &flag, MPI_STATUS_IGNORE);
      if (rank == 1 && data[0] != i) ++*bad;
      if (rank == 1) data[0] = -i;
      MPIX_Start(dreq2);
      flag = 0;
      while (!flag) MPIX_Test(&dreq2, &flag, MPI_STATUS_IGNORE);
      if (rank == 0 && data[0] != -i) ++*bad;
    }
  }
};

void pages(int turns) {
  auto* const data = static_cast<int*>(support::allocate_pinned(4096));
  auto* const bad = static_cast<std::uint64_t*>(support::allocate_on_device(8));
  const int peer = 1 - rank;
  {
    Requests requests;
    MPI_Request send_request, recv_request;
    CHECK_MPI(MPI_Send_init(data, 1024, MPI_INT, peer, 999, MPI_COMM_WORLD, &send_request));
    CHECK_MPI(MPI_Recv_init(data, 1024, MPI_INT, peer, 999, MPI_COMM_WORLD, &recv_request));
    requests.add(send_request);
    requests.add(recv_request);
    const double begin = MPI_Wtime();
    support::launch_blocks(Page{requests[0], requests[1], rank, data, turns, bad}, 1, 1);
    support::synchronize();
    std::printf("[%d] latency = %f us\n", rank, 1e6 * (MPI_Wtime() - begin) / (2.0 * turns));
  }
  std::uint64_t found = 0;
  support::to_host(&found, bad, sizeof found);
  EXPECT(found == 0);
  support::release_on_device(bad);
  support::release_pinned(data);
}

// ---- Partitions --------------------------------------------------------------------------------------

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

// ---- Calls -------------------------------------------------------------------------------------------

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
  constexpr std::size_t count = sizeof expected / sizeof expected[0];
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
    int found[count];
    support::to_host(found, results, sizeof found);
    for (std::size_t i = 0; i < count; ++i)
      if (found[i] != expected[i]) {
        std::printf("wrong use %zu: %d instead of %d\n", i, found[i], expected[i]);
        ++failures;
      }
    CHECK_MPI(MPI_Request_free(&other));
  }
  support::release_pinned(both);
  support::release_on_device(results);
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
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    if (team.thread != 0) return;
    MPIX_Drequest mine = request;
    result[0] = MPIX_Start(&mine);
    result[1] = MPIX_Wait(&mine, MPI_STATUS_IGNORE);
  }
};

/// MPI finds that what has come is too long: kernels are released, until all device requests are freed. `way`: none
/// comes, and the report of MPIX_TIMEOUT ends the wait.
void broken(bool by_silence) {
  auto* const result = static_cast<int*>(support::allocate_on_device(16));
  std::uint64_t *const in = words(1), *const in_too = words(1);
  const char* const why = by_silence
                              ? "receive from rank 0, tag 6) was started by a kernel, and MPI has not completed it"
                              : "of device request 0 (receive from rank 0, tag 6) has failed";
  MPI_Comm comm;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_SELF, &comm));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MPI_Request request = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
  MPIX_Drequest given, given_too;
  CHECK_MPI(MPI_Recv_init(in, 1, MPI_UINT64_T, 0, 6, comm, &request));
  CHECK_MPI(MPI_Recv_init(in_too, 1, MPI_UINT64_T, 0, 7, comm, &other));
  CHECK_MPI(MPIX_Get_drequest(request, &given));
  support::launch_blocks(WaitForEver{given, result}, 1, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
}

// ---- Steady, leave -----------------------------------------------------------------------------------

long status_of(const char* what) {
  long value = -1;
  char line[256];
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  while (status && std::fgets(line, sizeof line, status))
    if (std::strncmp(line, what, std::strlen(what)) == 0) value = std::atol(line + std::strlen(what));
  if (status) std::fclose(status);
  return value;
}

void steady(int times) {
  auto* const result = static_cast<int*>(support::allocate_on_device(16));
  std::uint64_t* const word = words(1);
  long threads = 0, kilobytes = 0;
  for (int i = 0; i < times; ++i) {
    Requests requests;
    MPI_Request send = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Send_init(word, 1, MPI_UINT64_T, MPI_PROC_NULL, 0, MPI_COMM_SELF, &send));
    requests.add(send);
    support::launch_blocks(WaitForEver{requests[0], result}, 1, 1);
    support::synchronize();
    if (i != times / 5) continue;
    threads = status_of("Threads:");
    kilobytes = status_of("VmRSS:");
  }
  const long later = status_of("VmRSS:");
  EXPECT(status_of("Threads:") <= threads);
  EXPECT(later - kilobytes < 1000);
  std::printf("%ld threads, %ld kB; then %ld kB\n", threads, kilobytes, later);
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
  support::launch_blocks(WaitForEver{given, result}, 1, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
  } else if (what == "pages") {
    pages(number ? static_cast<int>(number) : 2000);
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
    std::fprintf(stderr, "drequest exchange|restart|many|any|pages|partitions|calls|steady|silence|leave|single\n");
    ++failures;
  }
  CHECK_MPI(MPI_Finalize());
  if (failures == 0) std::printf("drequest %s: all as expected\n", what.c_str());
  return failures == 0 ? 0 : 1;
}
