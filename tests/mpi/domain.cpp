// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Ranks of a domain, as threads or, compiled as CUDA or HIP, as blocks:
//
//   mpiexec -n N domain random [RANKS] [ROUNDS] [THREADS] [INLINE] [LANE_LINES]
//     random operations against a serial model; RANKS in each process
//   mpiexec -n N domain steady [STEPS]
//     steps of random neighbours; afterwards the process has as much memory as before
//   mpiexec -n N domain crossing [ROUNDS]
//     large gets and puts in both directions at once, more than is between two nodes
//   mpiexec -n N domain turns [LAUNCHES]
//     launches in two streams that nothing orders: each rank runs them one after another
//   mpiexec -n N domain crowd [RANKS]
//     so many ranks in each process, which meet in barriers: those that wait leave the cores to the others
//   mpiexec -n N domain leave
//     a domain is alive when MPI ends
//   mpiexec -n N domain calls
//     what else there is: windows that kernels open, flush of ranks that have finished, overlap without a copy, wrong
//     arguments
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/domain.h"
#include "support/domain_kernels.h"
#include "support/streams.h"

namespace {

int rank = 0, ranks = 1;
int failures = 0;

#define EXPECT(holds)                                                                    \
  do {                                                                                   \
    if (!(holds)) {                                                                      \
      std::printf("process %d, %s:%d: expected %s\n", rank, __FILE__, __LINE__, #holds); \
      ++failures;                                                                        \
    }                                                                                    \
  } while (false)

struct Random {
  test::RandomTest t;
  char* parts[3];
  char* scratch;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    char* mine[3];
    for (int i = 0; i < 3; ++i) mine[i] = parts[i] + here * t.part_bytes(c.p.ranks);
    test::RandomRank(c, t, mine, scratch + here * t.scratch_bytes(c.p.ranks), findings[here]).run();
  }
};

void report(const std::vector<test::Findings>& all) {
  for (const test::Findings& one : all) {
    if (one.faults == 0) continue;
    std::printf("rank %llu: %llu faults; the first at line %llu: %llu %llu %llu %llu\n",
                static_cast<unsigned long long>(one.first[5]), static_cast<unsigned long long>(one.faults),
                static_cast<unsigned long long>(one.first[0]), static_cast<unsigned long long>(one.first[1]),
                static_cast<unsigned long long>(one.first[2]), static_cast<unsigned long long>(one.first[3]),
                static_cast<unsigned long long>(one.first[4]));
    ++failures;
  }
}

void random_operations(int here, std::uint32_t rounds, int threads, const char* in_lines, const char* lane_lines) {
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  if (in_lines) CHECK_MPI(MPI_Info_set(info, "mpix_dev_inline", in_lines));
  if (lane_lines) CHECK_MPI(MPI_Info_set(info, "mpix_dev_lane_lines", lane_lines));
  support::Domain domain(MPI_COMM_WORLD, here, info);
  CHECK_MPI(MPI_Info_free(&info));
  const auto all = static_cast<std::uint32_t>(here * ranks);
  Random kernel{};
  kernel.t = test::RandomTest{7u + rounds, rounds, {0, 0, 0}, 4100, 20000};
  const std::size_t bytes = kernel.t.part_bytes(all);
  for (int i = 0; i < 3; ++i) {
    kernel.parts[i] = domain.allocate(bytes * static_cast<std::size_t>(here));
    kernel.t.windows[i] = domain.window_over(kernel.parts[i], bytes);
  }
  kernel.scratch = domain.allocate(kernel.t.scratch_bytes(all) * static_cast<std::size_t>(here));
  std::vector<test::Findings> findings(static_cast<std::size_t>(here));
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(findings.size() * sizeof findings[0]));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(support::launch(domain, kernel, threads));
  support::synchronize();
  support::to_host(findings.data(), kernel.findings, findings.size() * sizeof findings[0]);
  report(findings);
  for (const test::Findings& one : findings) EXPECT(one.operations == std::uint64_t{rounds} * test::RandomTest::ops);
  domain.check();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0)
    std::printf("%llu random operations of %u ranks\n",
                static_cast<unsigned long long>(all) * rounds * test::RandomTest::ops, all);
}

/// Each step every rank tells two others, whom all can compute, and hears from those that tell it. Some are steps ahead
/// of others, as few as there are ranks: each step has a place of its own for a while.
struct Steps {
  MPIX_Dev_win window;
  char* base;
  std::uint32_t steps;
  test::Findings* findings;
  static constexpr std::uint32_t places = 64;
  static constexpr std::size_t part = (places + 1) * 8;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& found = findings[c.rank - c.p.first_rank];
    const std::uint32_t n = c.p.ranks;
    std::uint64_t* const mine =
        reinterpret_cast<std::uint64_t*>(base) + std::size_t{c.rank - c.p.first_rank} * (places + 1);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const auto by = static_cast<std::uint32_t>(test::mix(step) % n), other = (by + 1 + step % 2) % n;
      for (const std::uint32_t distance : {by, other}) {
        mpix::dev::sync_team(c);
        if (mpix::dev::is_first(c)) mine[places] = step;
        const auto to = static_cast<int>((c.rank + distance) % n);
        if (MPIX_Dev_put_notify(&c, window, to, 8 * (step % places), 8, mine + places, static_cast<int>(step % 1000)) !=
            0)
          test::fault(c, found, __LINE__, step);
      }
      if (MPIX_Dev_wait(&c, window, MPIX_DEV_ANY_SOURCE, static_cast<int>(step % 1000), 2) != 0) {
        test::fault(c, found, __LINE__, step);
        return;
      }
      if (mine[step % places] != step) test::fault(c, found, __LINE__, step, mine[step % places]);
      if (mpix::dev::is_first(c)) ++found.operations;
    }
  }
};

long kilobytes() {
  long pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(statm);
  }
  return pages * 4;
}

void steady(std::uint32_t steps) {
  const int here = 2;
  support::Domain domain(MPI_COMM_WORLD, here);
  Steps kernel{};
  kernel.base = domain.allocate(Steps::part * here);
  kernel.window = domain.window_over(kernel.base, Steps::part);
  std::vector<test::Findings> findings(here);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * here));
  long before = 0;
  for (int part = 0; part < 10; ++part) {
    kernel.steps = steps / 10;
    CHECK_MPI(support::launch(domain, kernel, 64));
    support::synchronize();
    // By then all of what is used in turns has been used.
    if (part == 4) before = kilobytes();
  }
  const long more = kilobytes() - before;
  EXPECT(more < 512);
  support::to_host(findings.data(), kernel.findings, sizeof findings[0] * here);
  report(findings);
  for (const test::Findings& one : findings) EXPECT(one.operations == steps / 10 * 10);
  domain.check();
  if (rank == 0) std::printf("%u steps, and %ld KB more\n", steps, more);
}

struct Turns {
  volatile std::uint64_t* running;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    if (!mpix::dev::is_first(c)) return;
    const std::uint32_t here = c.rank - c.p.first_rank;
    if (running[here] != 0) test::fault(c, findings[here], __LINE__, 0);
    running[here] = 1;
    for (const std::uint64_t begin = MPIX_Dev_clock(); MPIX_Dev_clock() - begin < 20000;) {
    }
    running[here] = 0;
    ++findings[here].operations;
  }
};

void turns(int launches) {
  const int here = 2;
  support::Domain domain(MPI_COMM_WORLD, here);
  support::Stream streams[2];
  Turns kernel{};
  kernel.running = reinterpret_cast<std::uint64_t*>(domain.allocate(sizeof(std::uint64_t) * here));
  std::vector<test::Findings> findings(here);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * here));
  for (int i = 0; i < launches; ++i) CHECK_MPI(support::launch(domain, kernel, 64, streams[i % 2].handle()));
  for (support::Stream& stream : streams) stream.synchronize();
  support::to_host(findings.data(), kernel.findings, sizeof findings[0] * here);
  report(findings);
  for (const test::Findings& one : findings) EXPECT(one.operations == static_cast<std::uint64_t>(launches));
  domain.check();
}

struct Crowd {
  Steps between;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    for (int i = 0; i < 3; ++i) {
      between(c);
      if (MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) != 0)
        test::fault(c, between.findings[c.rank - c.p.first_rank], __LINE__, static_cast<std::uint64_t>(i));
    }
  }
};

void crowd(int here) {
  support::Domain domain(MPI_COMM_WORLD, here);
  Crowd kernel{};
  Steps& steps = kernel.between;
  const auto count = static_cast<std::size_t>(here);
  steps.base = domain.allocate(Steps::part * count);
  steps.window = domain.window_over(steps.base, Steps::part);
  steps.steps = 5;
  std::vector<test::Findings> findings(count);
  steps.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * count));
  CHECK_MPI(support::launch(domain, kernel, 64));
  support::synchronize();
  support::to_host(findings.data(), steps.findings, sizeof findings[0] * count);
  report(findings);
  for (const test::Findings& one : findings) EXPECT(one.operations == 3 * steps.steps);
  domain.check();
}

/// Of each process the first rank reads from its like in the next one, and the others put there, all at once: what is
/// under way is full of both.
struct Crossing {
  static constexpr std::size_t bytes = 256 * 1024;
  static constexpr int each = 5;
  MPIX_Dev_win window;
  char *base, *scratch;
  int rounds;
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    test::Findings& f = findings[here];
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    const int next = (me + each) % n, before = (me + n - each) % n;
    char *const mine = base + here * bytes, *const own = scratch + here * bytes;
    test::fill(c, here == 0 ? mine : own, bytes, test::Pattern{static_cast<std::uint64_t>(me)});
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    for (int round = 0; round < rounds; ++round)
      DOMAIN_EXPECT(c, f,
                    (here == 0 ? MPIX_Dev_get(&c, window, next, 0, bytes, own)
                               : MPIX_Dev_put_notify(&c, window, next, 0, bytes, own, 1)) == MPI_SUCCESS);
    if (here != 0) DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, before, 1, rounds) == MPI_SUCCESS);
    const test::Pattern wanted{static_cast<std::uint64_t>(here == 0 ? next : before)};
    if (test::differing(c, here == 0 ? own : mine, bytes, wanted, &f.operations) != 0)
      test::fault(c, f, __LINE__, f.operations);
  }
};

void crossing(int rounds) {
  constexpr int here = Crossing::each;
  support::Domain domain(MPI_COMM_WORLD, here);
  Crossing kernel{};
  kernel.base = domain.allocate(Crossing::bytes * here);
  kernel.scratch = domain.allocate(Crossing::bytes * here);
  kernel.window = domain.window_over(kernel.base, Crossing::bytes);
  kernel.rounds = rounds;
  std::vector<test::Findings> findings(here);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * here));
  CHECK_MPI(support::launch(domain, kernel, 64));
  support::synchronize();
  support::to_host(findings.data(), kernel.findings, sizeof findings[0] * here);
  report(findings);
  domain.check();
}

/// What each call is for, and what it answers to wrong arguments.
struct Calls {
  MPIX_Dev_win window;
  char* base;  ///< of this process: `part` bytes for each rank
  std::size_t part;
  std::uint32_t launch;
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    if (launch == 0)
      leave_some(c, f);
    else if (launch == 1)
      take_those(c, f);
    else
      wrong_arguments(c, f);
    if (mpix::dev::is_first(c)) ++f.operations;
  }

  MPIX_DEV_METHOD char* mine(const MPIX_Dev_ctx& c) const { return base + (c.rank - c.p.first_rank) * part; }
  MPIX_DEV_METHOD static void set(const MPIX_Dev_ctx& c, char* to, std::size_t bytes, char value) {
    mpix::dev::sync_team(c);
    const mpix::Workers team = mpix::dev::team_of(c);
    for (std::size_t i = team.index; i < bytes; i += team.size) to[i] = value;
    mpix::dev::sync_team(c);
  }
  MPIX_DEV_METHOD static bool is(const char* data, std::size_t bytes, char value) {
    for (std::size_t i = 0; i < bytes; ++i)
      if (data[i] != value) return false;
    return true;
  }

  /// Notifications, with data, that nobody asks for in this launch; rank 0 leaves at once, and is put to meanwhile.
  MPIX_DEV_METHOD void leave_some(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    DOMAIN_EXPECT(c, f, MPIX_Dev_rank(&c, MPIX_DEV_WORLD) == me && MPIX_Dev_size(&c, MPIX_DEV_WORLD) == n);
    char* const from = mine(c) + part / 2;
    set(c, from, 64, static_cast<char>(1 + me));
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, (me + 1) % n, 128, 64, from, 7) == MPI_SUCCESS);
    if (me == 0) return;
    set(c, from, 64, static_cast<char>(100 + me));
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, 0, 256 + 64 * static_cast<std::size_t>(me), 64, from, 9) == 0);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, window, 0, 256 + 64 * static_cast<std::size_t>(n + me), 64, from) == 0);
    // The data are there afterwards, whether rank 0 has left or not.
    DOMAIN_EXPECT(c, f, MPIX_Dev_flush(&c, window) == MPI_SUCCESS);
    char* const back = mine(c) + part / 2 + 128;
    for (int i : {me, n + me}) {
      set(c, back, 64, 0);
      DOMAIN_EXPECT(c, f, MPIX_Dev_get(&c, window, 0, 256 + 64 * static_cast<std::size_t>(i), 64, back) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, is(back, 64, static_cast<char>(100 + me)));
    }
  }

  MPIX_DEV_METHOD void take_those(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    MPIX_Dev_status status{};
    int flag = 0;
    if (me == 0) {
      // All or nothing.
      DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, window, MPIX_DEV_ANY_SOURCE, 9, n, &flag) == MPI_SUCCESS && !flag);
      DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, window, MPIX_DEV_ANY_SOURCE, 9, n - 1, &flag, &status) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, flag && (n == 1 || (status.tag == 9 && status.bytes == 64 && status.window == window)));
    }
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, 0, 0, 0) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, 7, 1, &status) == 0);
    DOMAIN_EXPECT(c, f, status.source == (me + n - 1) % n && status.bytes == 64 && !status.was_read);
    DOMAIN_EXPECT(c, f, is(mine(c) + 128, 64, static_cast<char>(1 + (me + n - 1) % n)));
    // Where source and target are the same place nothing is moved: only the notification comes.
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, me, 128, 64, mine(c) + 128, 1) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, window, me, 1, 1, &status) == MPI_SUCCESS && status.bytes == 64);
    put_from_the_stack(c, f);
    put_rows(c, f);
    put_for_all(c, f);
    put_ahead(c, f);
    // Read, and told so.
    char* const back = mine(c) + part / 2;
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_get_notify(&c, window, (me + 1) % n, 128, 64, back, 3) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, is(back, 64, static_cast<char>(1 + me)));
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, window, (me + n - 1) % n, 3, 1, &status) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, status.was_read && status.bytes == 64);
    // More than lanes hold, from all to one, and in a circle.
    for (int i = 0; i < 3000; ++i) {
      const std::size_t bytes = i % 3 == 0 ? 0 : 256;
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, (me + 1) % n, 128, bytes, back, 5) == MPI_SUCCESS);
      if (i >= 900) DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, MPIX_DEV_ANY_SOURCE, 5, 1) == MPI_SUCCESS);
    }
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, (me + n - 1) % n, 5, 900) == MPI_SUCCESS);
    // Nobody sets these aside for long: there are more than there is room for.
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    for (int i = 0; me != 0 && i < 500; ++i) DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, 0, 6) == MPI_SUCCESS);
    if (me == 0) DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, MPIX_DEV_ANY_SOURCE, 6, 500 * (n - 1)) == MPI_SUCCESS);
    open_and_close(c, f);
    put_between_words(c, f);
  }

  /// A window that does not begin at a multiple of 8, so that what lies at one in it is at none in memory.
  MPIX_DEV_METHOD void put_between_words(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank), before = (me + n - 1) % n;
    char* const from = mine(c) + part / 2;
    MPIX_Dev_win crooked = -1;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, mine(c) + 516, 64, &crooked) == MPI_SUCCESS);
    const std::size_t places[] = {4, 8, 12, 0, 3, 16, 20, 24};
    for (int round = 0; round < 32; ++round) {
      const std::size_t place = places[round % 8];
      set(c, from, 8, static_cast<char>(me + round));
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, crooked, (me + 1) % n, place, 8, from, round) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, crooked, before, round, 1) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, is(mine(c) + 516 + place, 8, static_cast<char>(before + round)));
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    }
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &crooked) == MPI_SUCCESS);
  }

  /// What was put before a notification is seen with it, also by a target that has looked at the place before.
  MPIX_DEV_METHOD void put_ahead(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank), other = me ^ 1;
    if (other >= n) return;
    const bool first = mpix::dev::is_first(c);
    auto* const words = reinterpret_cast<std::uint64_t*>(mine(c) + part - 1024);
    for (std::uint64_t round = 1; round <= 200; ++round) {
      if (me % 2 != 0) {
        if (first) words[49] += words[0];  // it lies in the first-level cache now
        DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, other, 11) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, other, 12, 1) == MPI_SUCCESS);
        if (first && words[0] != round) test::fault(c, f, __LINE__, words[0], round);
      } else {
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, other, 11, 1) == MPI_SUCCESS);
        if (first) words[0] = round;
        DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, window, other, part - 1024, 8, words) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, other, part - 512, 8, words, 12) == MPI_SUCCESS);
      }
    }
  }

  /// What one rank puts to another is there for a third behind a barrier, by whatever way that reads it.
  MPIX_DEV_METHOD void put_for_all(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    char* const from = mine(c) + part / 2;
    for (int round = 0; round < 300; ++round) {
      const int source = round % n, target = (round * 7 + 1) % n;
      const auto value = static_cast<char>(1 + round % 100);
      if (me == source) {
        set(c, from, 512, value);
        DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, window, target, 2048, 512, from) == MPI_SUCCESS);
      }
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
      char* const back = mine(c) + part / 2 + 512;
      DOMAIN_EXPECT(c, f, MPIX_Dev_get(&c, window, target, 2048, 512, back) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, is(back, 512, value));
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    }
  }

  /// Rows, close together here and further apart there, or the other way round; with gaps that stay as they are.
  MPIX_DEV_METHOD void put_rows(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank), next = (me + 1) % n;
    char* const from = mine(c) + part / 2;
    char* const to = mine(c) + 1024;
    for (const std::size_t width : {std::size_t{16}, std::size_t{48}, std::size_t{13}, std::size_t{0}}) {
      const std::size_t there = 96, here = 64, rows = 20;
      set(c, to, there * rows, 77);
      for (std::size_t row = 0; row < rows; ++row) set(c, from + row * here, width, static_cast<char>(row + 1));
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_2d(&c, window, next, 1024, there, from, here, width, rows, 10) == 0);
      MPIX_Dev_status status{};
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, window, (me + n - 1) % n, 10, 1, &status) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, status.bytes == width * rows);
      for (std::size_t row = 0; row < rows; ++row) {
        DOMAIN_EXPECT(c, f, is(to + row * there, width, static_cast<char>(row + 1)));
        DOMAIN_EXPECT(c, f, is(to + row * there + width, there - width, 77));
      }
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    }
  }

  /// What is put may lie in memory of the block, or of its threads; here in lines, and straight.
  MPIX_DEV_METHOD void put_from_the_stack(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int me = static_cast<int>(c.rank);
    char own[6000];
    for (int i = 0; i < 6000; ++i) own[i] = static_cast<char>(i * 7 + me);
    for (const std::size_t bytes : {std::size_t{13}, std::size_t{64}, std::size_t{6000}}) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, me, 1024, bytes, own, 8) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, me, 8, 1) == MPI_SUCCESS);
      bool same = true;
      for (std::size_t i = 0; i < bytes; ++i) same = same && mine(c)[1024 + i] == own[i];
      DOMAIN_EXPECT(c, f, same);
    }
  }

  /// Windows that kernels open over attached memory; each rank has the part that it says.
  MPIX_DEV_METHOD void open_and_close(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    MPIX_Dev_win opened = -1, here = -1;
    for (int round = 0; round < 70; ++round) {  // more than there may be at a time
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, mine(c) + 512, 64, &opened) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_DEVICE, mine(c) + 576, 64, &here) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, opened != here && opened != window);
      char* const from = mine(c) + part / 2;
      set(c, from, 8, static_cast<char>(me + round));
      const int next = (me + 1) % n;
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, opened, next, 8, 8, from, 2) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, opened, MPIX_DEV_ANY_SOURCE, 2, 1) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, is(mine(c) + 520, 8, static_cast<char>((me + n - 1) % n + round)));
      DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, here, me, 0, 8, from, 2) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, here, me, 2, 1) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, is(mine(c) + 576, 8, static_cast<char>(me + round)));
      DOMAIN_EXPECT(c, f, MPIX_Dev_ptr(&c, here, me, 63) == mine(c) + 639 && !MPIX_Dev_ptr(&c, here, me, 64));
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &opened) == MPI_SUCCESS && opened == -1);
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &here) == MPI_SUCCESS);
    }
  }

  MPIX_DEV_METHOD void wrong_arguments(MPIX_Dev_ctx& c, test::Findings& f) const {
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    char* const from = mine(c);
    int flag = 1;
    MPIX_Dev_win opened = -5;
    DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, me, 21) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, MPI_PROC_NULL, 0, 8, from, 0) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, n, 0, 8, from, 0) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, -17, 0, 8, from, 0) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, 0, 0, 8, from, -1) == MPI_ERR_TAG);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, 0, part, 1, from, 1) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, 0, 8, ~std::size_t{0} - 4, from, 1) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, window, 0, ~std::size_t{0}, 8, from) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, 0, 0, 8, nullptr, 1) == MPI_ERR_BUFFER);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window + 1, 0, 0, 8, from, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, -1, 0, 0, 8, from, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, 100000, 0, 0, 8, from, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify_2d(&c, window, 0, 0, part, from, 8, 8, 2, 10) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(
        c, f, MPIX_Dev_put_notify_2d(&c, window, 0, 0, ~std::size_t{0} / 2, from, 8, 8, 3, 10) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, 17) == MPI_ERR_COMM && MPIX_Dev_barrier(&c, -1) == MPI_ERR_COMM);
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, 3, from, 8, &opened) == MPI_ERR_COMM);
    DOMAIN_EXPECT(c, f, MPIX_Dev_get(&c, window, n, 0, 8, from) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_get_notify(&c, window, me, 0, part + 1, from, 0) == MPI_ERR_RMA_RANGE);
    DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, n, 0) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, n, 0, 1) == MPI_ERR_RANK);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, 0, -2, 1) == MPI_ERR_TAG);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, 0, 0, -1) == MPI_ERR_COUNT);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window + 1, 0, 0, 1) == MPI_ERR_WIN);
    DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, window, 0, 0, -1, &flag) == MPI_ERR_COUNT && flag == 0);
    DOMAIN_EXPECT(c, f, MPIX_Dev_flush(&c, window + 1) == MPI_ERR_WIN);
    // None of these has sent something, or taken what was there.
    MPIX_Dev_status status{};
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, window, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1, &status) == 0);
    DOMAIN_EXPECT(c, f, status.source == me && status.tag == 21);
    DOMAIN_EXPECT(c, f, MPIX_Dev_test(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1, &flag) == 0);
    DOMAIN_EXPECT(c, f, flag == 0 && MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    // Of one rank, or of all: nobody gets a window, and the next one has the same number for all.
    for (int who : {0, n - 1, -1}) {
      char* const at = who < 0 || who == me ? from - part * 1000 : from;
      DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, at, 8, &opened) == MPI_ERR_RMA_ATTACH);
      DOMAIN_EXPECT(c, f, opened == -5);
    }
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_open(&c, MPIX_DEV_WORLD, from, 8, &opened) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, opened, (me + 1) % n, 4) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, opened, MPIX_DEV_ANY_SOURCE, 4, 1) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, !MPIX_Dev_ptr(&c, opened, me, ~std::size_t{0}) && MPIX_Dev_ptr(&c, opened, me, 7));
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &opened) == MPI_SUCCESS);
    opened = window;
    DOMAIN_EXPECT(c, f, MPIX_Dev_win_close(&c, &opened) == MPI_ERR_WIN);
  }
};

void calls() {
  const int here = 3;
  constexpr std::size_t part = 8192;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  support::Domain domain(MPI_COMM_WORLD, here);
  Calls kernel{};
  kernel.part = part;
  kernel.base = domain.allocate(part * here);
  kernel.window = domain.window_over(kernel.base, part);
  CHECK_MPI(MPIX_Dev_attach(domain, kernel.base, part * here));
  std::vector<test::Findings> findings(here);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof findings[0] * here));
  for (kernel.launch = 0; kernel.launch < 3; ++kernel.launch) {
    CHECK_MPI(support::launch(domain, kernel, kernel.launch == 1 ? 33 : 128));
    support::synchronize();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (kernel.launch == 0) {
      MPIX_Dev_stats stats{};
      CHECK_MPI(MPIX_Dev_get_stats(domain, &stats, sizeof stats));
      EXPECT(stats.launches == 1 && stats.lane_bytes > 0);
    }
    if (kernel.launch < 2) domain.check();
  }
  support::to_host(findings.data(), kernel.findings, sizeof findings[0] * here);
  report(findings);
  for (const test::Findings& one : findings) EXPECT(one.operations == 3);

  // The first error is kept, with what was wrong.
  int error_class = MPI_SUCCESS;
  char text[256] = "";
  CHECK_MPI(MPIX_Dev_error(domain, 1, &error_class, text, sizeof text));
  EXPECT(error_class == MPI_ERR_RANK && std::strstr(text, "MPIX_Dev_put_notify: no such rank"));
  CHECK_MPI(MPIX_Dev_error(domain, 0, &error_class, text, sizeof text));
  EXPECT(error_class == MPI_SUCCESS);

  // The host's calls.
  const auto class_of = [](int code) {
    int found = MPI_SUCCESS;
    MPI_Error_class(code, &found);
    return found;
  };
  MPIX_Dev nothing = MPIX_DEV_NULL;
  MPIX_Dev_win window = 17;
  std::vector<char> own(64);
  EXPECT(class_of(MPIX_Dev_create(MPI_COMM_NULL, 1, MPI_INFO_NULL, &nothing)) == MPI_ERR_COMM);
  if (ranks > 1) {
    MPI_Comm half = MPI_COMM_NULL, inter = MPI_COMM_NULL;
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &half));
    CHECK_MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &inter));
    CHECK_MPI(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    EXPECT(class_of(MPIX_Dev_create(inter, 1, MPI_INFO_NULL, &nothing)) == MPI_ERR_COMM);
    CHECK_MPI(MPI_Comm_free(&inter));
    CHECK_MPI(MPI_Comm_free(&half));
  }
  EXPECT(class_of(MPIX_Dev_create(MPI_COMM_WORLD, -1, MPI_INFO_NULL, &nothing)) == MPI_ERR_ARG);
  EXPECT(nothing == MPIX_DEV_NULL);
  EXPECT(class_of(MPIX_Dev_create(MPI_COMM_WORLD, 0, MPI_INFO_NULL, &nothing)) == MPI_ERR_ARG);
  EXPECT(class_of(MPIX_Dev_free(&nothing)) == MPI_ERR_ARG);
  EXPECT(class_of(MPIX_Dev_win_free(domain, &window)) == MPI_ERR_WIN);
  if (!support::ranks_are_blocks) EXPECT(class_of(MPIX_Dev_attach(domain, own.data(), 64)) == MPI_ERR_RMA_ATTACH);
  {  // lengths that wrap around; a null pointer on one process is an error on all
    char* const memory = domain.allocate(8192);
    for (const std::size_t bytes : {std::size_t{0} - 3900, std::size_t{0} - 1, std::size_t{1} << 40})
      EXPECT(class_of(MPIX_Dev_attach(domain, memory + 4000, bytes)) == MPI_ERR_RMA_ATTACH);
    std::vector<void*> bases(static_cast<std::size_t>(here), memory);
    const std::vector<std::size_t> sizes(static_cast<std::size_t>(here), 64);
    MPIX_Dev_win unused = -1;
    MPIX_Dev unused_domain = MPIX_DEV_NULL;
    EXPECT(class_of(MPIX_Dev_win_create(domain, bases.data(), sizes.data(), rank == 0 ? nullptr : &unused)) ==
           MPI_ERR_ARG);
    EXPECT(unused == -1);
    EXPECT(class_of(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, rank == 0 ? nullptr : &unused_domain)) !=
           MPI_SUCCESS);
    EXPECT(unused_domain == MPIX_DEV_NULL);
  }
  for (const char* wrong : {"100", "8", "x", "131072"}) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpix_dev_lane_lines", wrong));
    EXPECT(class_of(MPIX_Dev_create(MPI_COMM_WORLD, 1, info, &nothing)) == MPI_ERR_ARG);
    CHECK_MPI(MPI_Info_free(&info));
  }
  std::vector<MPIX_Dev_win> many;
  int made = MPI_SUCCESS;
  while (made == MPI_SUCCESS && many.size() < 100) {
    void* bases[here];
    std::size_t sizes[here];
    for (int i = 0; i < here; ++i) bases[i] = kernel.base + static_cast<std::size_t>(i), sizes[i] = part - 3;
    made = MPIX_Dev_win_create(domain, bases, sizes, &window);
    if (made == MPI_SUCCESS) many.push_back(window);
  }
  EXPECT(many.size() == 63 && class_of(made) == MPI_ERR_NO_MEM);
  for (MPIX_Dev_win& one : many) CHECK_MPI(MPIX_Dev_win_free(domain, &one));
  CHECK_MPI(MPIX_Dev_detach(domain, kernel.base));
  EXPECT(class_of(MPIX_Dev_detach(domain, kernel.base)) == MPI_ERR_RMA_ATTACH);
  // Several of which a process gives nothing, and one base twice.
  char* const base[] = {domain.allocate(64), domain.allocate(64)};
  for (char* const one : {base[0], base[1], base[1]})
    CHECK_MPI(MPIX_Dev_attach(domain, rank == 0 ? one : nullptr, rank == 0 ? 64 : 0));
  for (char* const one : {base[1], base[0], base[1]}) CHECK_MPI(MPIX_Dev_detach(domain, rank == 0 ? one : nullptr));
  if (rank == 0) std::printf("calls: %d failures here\n", failures);
}

/// The domain is never freed: the program ends with MPI, and with nothing else.
void leave() {
  static auto& domain = *new support::Domain(MPI_COMM_WORLD, 2);  // no leak: it is still known
  static Steps kernel{};
  kernel.base = domain.allocate(2 * Steps::part);
  kernel.window = domain.window_over(kernel.base, Steps::part);
  kernel.findings = reinterpret_cast<test::Findings*>(domain.allocate(sizeof(test::Findings) * 2));
  kernel.steps = 100;
  CHECK_MPI(support::launch(domain, kernel, 64));
  support::synchronize();
  domain.check();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  support::choose_gpu(rank);
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i, int preset) { return argc > i ? std::atoi(argv[i]) : preset; };
  if (what == "random")
    random_operations(number(2, 2), static_cast<std::uint32_t>(number(3, 500)), number(4, 64),
                      argc > 5 ? argv[5] : nullptr, argc > 6 ? argv[6] : nullptr);
  else if (what == "steady")
    steady(static_cast<std::uint32_t>(number(2, 100000)));
  else if (what == "crossing")
    crossing(number(2, 100));
  else if (what == "calls")
    calls();
  else if (what == "turns")
    turns(number(2, 100));
  else if (what == "crowd")
    crowd(number(2, 100));
  else if (what == "leave")
    leave();
  else
    EXPECT(!"a known argument");
  int all = 0;
  CHECK_MPI(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Finalize());
  return all == 0 ? 0 : 1;
}
