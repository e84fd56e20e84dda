// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// What ranks of a domain are, and how they go about with each other; as threads or, compiled as CUDA or HIP, blocks:
//
//   mpiexec -n N domain_ranks warp
//     one warp of each block communicates, and the others compute; on a host there is one thread
//   mpiexec -n N domain_ranks groups
//     barriers of each group, and the random operations of domain.cpp, where processes bring unequal numbers of ranks,
//     or none
//   mpiexec -n N domain_ranks leftovers
//     notifications that nobody asks for in a hundred launches, and then in none
//   mpiexec -n N domain_ranks floods
//     one to all, and eight to one, by lanes that hold little of it
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "support/capture.h"
#include "support/domain_program.h"

namespace {

using test::set;

/// Random operations against a serial model, by ranks of which a process may have none.
struct Random {
  test::RandomTest t;
  char* parts[3];
  char* scratch;
  test::Findings* findings;

  Random(test::Ranks& ranks, std::size_t here, std::uint32_t all, std::uint32_t rounds)
      : t{3u + rounds, rounds, {0, 0, 0}, 4100, 20000}, findings(ranks.found()) {
    const std::size_t bytes = t.part_bytes(all);
    for (int i = 0; i < 3; ++i) {
      parts[i] = ranks.domain.allocate(bytes * here);
      t.windows[i] = ranks.domain.window_over(parts[i], bytes);
    }
    scratch = ranks.domain.allocate(t.scratch_bytes(all) * here);
  }
  std::uint64_t operations() const { return std::uint64_t{t.rounds} * test::RandomTest::ops; }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    const std::uint32_t here = c.rank - c.p.first_rank;
    char* mine[3];
    for (int i = 0; i < 3; ++i) mine[i] = parts[i] + here * t.part_bytes(c.p.ranks);
    test::RandomRank(c, t, mine, scratch + here * t.scratch_bytes(c.p.ranks), findings[here]).run();
  }
};

// ---- a warp of the block -----------------------------------------------------------------------------

/// The threads of a block, as the program has them, with the one warp that calls the library.
struct Block {
  std::uint32_t thread, threads;
  bool calls;
  MPIX_DEV_METHOD void meet() const {
#if MPIX_ON_DEVICE
    __syncthreads();
#endif
  }
};

/// In each step all threads compute what the warp puts to the next rank, and look at what has come of the one before.
struct Warp {
  static constexpr std::size_t bytes = 8192, part = 3 * bytes;
  static constexpr std::uint64_t steps = 60;
  Random random;
  MPIX_Dev_win window;
  char* base;
  std::uint64_t* wrong;  ///< bytes, of each rank here
  test::Findings* findings;

  MPIX_DEV_METHOD static unsigned char value(std::uint32_t rank, std::uint64_t step, std::size_t i) {
    return static_cast<unsigned char>(rank * 31 + step * 7 + i);
  }
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c, const Block& block) const {
    const std::uint32_t here = c.rank - c.p.first_rank, n = c.p.ranks, before = (c.rank + n - 1) % n;
    test::Findings& f = findings[here];
    char *const mine = base + here * part, *const from = mine + 2 * bytes;
    const int next = static_cast<int>((c.rank + 1) % n);
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::size_t length = step % 3 == 0 ? 24 : step % 3 == 1 ? 777 : bytes;
      char* const to = mine + step % 2 * bytes;
      for (std::size_t i = block.thread; i < length; i += block.threads)
        from[i] = static_cast<char>(value(c.rank, step, i));
      block.meet();
      const auto tag = static_cast<int>(step);
      if (block.calls) {
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, next, step % 2 * bytes, length, from, tag) == MPI_SUCCESS);
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, static_cast<int>(before), tag, 1) == MPI_SUCCESS);
      }
      block.meet();
      for (std::size_t i = block.thread; i < length; i += block.threads)
        if (static_cast<unsigned char>(to[i]) != value(before, step, i))
          (void)mpix::fetch_add_on_device(wrong + here, 1);
      block.meet();
      // The one before is a step ahead at most, and the next may still be behind.
      if (block.calls) DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    }
    block.meet();
    if (!block.calls) return;
    if (wrong[here] != 0) test::fault(c, f, __LINE__, wrong[here]);
    random(c);
    test::count(c, f);
  }
};

#if defined(__CUDACC__) || defined(__HIPCC__)
__global__ void run_warp(MPIX_Dev_param param, Warp kernel) {
  __shared__ MPIX_Dev_ctx ctx;
  const Block block{threadIdx.x, blockDim.x, threadIdx.x / static_cast<unsigned>(warpSize) == 1};
  if (block.calls) (void)MPIX_Dev_init(&ctx, param, MPIX_DEV_WARP);
  block.meet();
  if (ctx.broken == mpix::dev::Result::ok) kernel(ctx, block);
  if (block.calls) MPIX_Dev_finish(&ctx);
}
int launch_warp(MPIX_Dev dev, const Warp& kernel) {
  return MPIX_Dev_launch(dev, run_warp, dim3(160), 0, nullptr, kernel);
}
#else
int launch_warp(MPIX_Dev dev, const Warp& kernel) {
  static const Warp* shared;
  shared = &kernel;
  return MPIX_Dev_launch_host(
      dev,
      [](MPIX_Dev_param param, void*) {
        MPIX_Dev_ctx ctx;
        if (MPIX_Dev_init(&ctx, param, MPIX_DEV_WARP) != MPI_SUCCESS) return;
        (*shared)(ctx, Block{0, 1, true});
        MPIX_Dev_finish(&ctx);
      },
      nullptr, nullptr);
}
#endif

void warp() {
  const int here = 2;
  test::Ranks ranks(here);
  char* const base = ranks.domain.allocate(Warp::part * here);
  const Random random(ranks, here, static_cast<std::uint32_t>(here * test::processes), 50);
  auto* const wrong = reinterpret_cast<std::uint64_t*>(ranks.domain.allocate(sizeof(std::uint64_t) * here));
  const Warp kernel{random, ranks.domain.window_over(base, Warp::part), base, wrong, ranks.found()};
  CHECK_MPI(launch_warp(ranks.domain, kernel));
  support::synchronize();
  ranks.check(random.operations() + 1);
  ranks.domain.check();
}

// ---- groups ------------------------------------------------------------------------------------------

/// Behind a barrier of a group each rank has what the one before it in the group put in front of it.
struct Groups {
  static constexpr std::uint64_t rounds = 100;
  MPIX_Dev_win window;
  std::uint64_t* words;  ///< of each rank here 8: two of each group, in turns; and one to put from
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    std::uint64_t* const mine = words + std::size_t{c.rank - c.p.first_rank} * 8;
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const std::uint64_t which = test::mix(round) % 5;
      const int comm = which == 0 ? MPIX_DEV_WORLD : which < 3 ? MPIX_DEV_NODE : MPIX_DEV_DEVICE;
      const int n = MPIX_Dev_size(&c, comm), i = MPIX_Dev_rank(&c, comm), first = static_cast<int>(c.rank) - i;
      const std::size_t place = static_cast<std::size_t>(comm) * 2 + round % 2;
      mpix::dev::sync_team(c);
      if (mpix::dev::is_first(c)) mine[6] = round * 100 + static_cast<std::uint64_t>(i);
      DOMAIN_EXPECT(c, f, MPIX_Dev_put(&c, window, first + (i + 1) % n, 8 * place, 8, mine + 6) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, comm) == MPI_SUCCESS);
      const std::uint64_t wanted = round * 100 + static_cast<std::uint64_t>((i + n - 1) % n);
      if (mine[place] != wanted) test::fault(c, f, __LINE__, mine[place], wanted);
      // Nobody puts there again before all have looked.
      DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, comm) == MPI_SUCCESS);
    }
    test::count(c, f);
  }
};

void groups() {
  const int unequal[][4] = {{3, 0, 1, 2}, {1, 3, 0, 2}};
  for (const auto& numbers : unequal) {
    const int here = numbers[test::process % 4];
    int all = 0;
    CHECK_MPI(MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    test::Ranks ranks(here);
    const auto count = static_cast<std::size_t>(here);
    auto* const words = reinterpret_cast<std::uint64_t*>(ranks.domain.allocate(64 * count));
    const MPIX_Dev_win window = ranks.domain.window_over(reinterpret_cast<char*>(words), 64);
    ranks.run(Groups{window, words, ranks.found()}, 1);
    const Random random(ranks, count, static_cast<std::uint32_t>(all), 30);
    ranks.run(random, random.operations());
    ranks.domain.check();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
}

// ---- what nobody asks for ----------------------------------------------------------------------------

/// Notifications to the next rank, with data, that stay: those of the first launch, taken in the last.
struct Leftovers {
  static constexpr int left = 20, launches = 100;
  MPIX_Dev_win window;
  char* base;
  int launch;
  test::Findings* findings;
  static constexpr std::size_t part = 64 * (left + 2);

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    char* const mine = base + (c.rank - c.p.first_rank) * part;
    char* const from = mine + 64 * (left + 1);
    for (int i = 0; launch == 0 && i < left; ++i) {
      set(c, from, 40, static_cast<char>(me + i));
      DOMAIN_EXPECT(
          c, f, MPIX_Dev_put_notify(&c, window, next, 64 * static_cast<std::size_t>(i), 40, from, 100 + i % 5) == 0);
    }
    set(c, from, 40, static_cast<char>(me + launch));
    DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, next, 64 * left, 40, from, launch % 100) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, before, launch % 100, 1) == MPI_SUCCESS);
    DOMAIN_EXPECT(c, f, test::is(mine + 64 * left, 40, static_cast<char>(before + launch)));
    // By tag, in the order in which they were sent.
    for (int tag = 104; launch == launches && tag >= 100; --tag)
      for (int i = tag - 100; i < left; i += 5) {
        MPIX_Dev_status status{};
        DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, MPIX_DEV_ANY_WINDOW, MPIX_DEV_ANY_SOURCE, tag, 1, &status) == 0);
        DOMAIN_EXPECT(c, f, status.source == before && status.window == window && status.bytes == 40);
        DOMAIN_EXPECT(c, f, test::is(mine + 64 * i, 40, static_cast<char>(before + i)));
      }
    DOMAIN_EXPECT(c, f, MPIX_Dev_barrier(&c, MPIX_DEV_WORLD) == MPI_SUCCESS);
    test::count(c, f);
  }
};

struct Untaken {
  MPIX_Dev_win window;
  test::Findings* findings;
  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const int next = static_cast<int>((c.rank + 1) % c.p.ranks);
    for (int i = 0; i < 3; ++i) DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, next, i) == MPI_SUCCESS);
    test::count(c, f);
  }
};

void leftovers() {
  const int here = 2;
  auto ranks = std::make_unique<test::Ranks>(here);
  char* const base = ranks->domain.allocate(Leftovers::part * here);
  const MPIX_Dev_win window = ranks->domain.window_over(base, Leftovers::part);
  for (int launch = 0; launch <= Leftovers::launches; ++launch) {
    ranks->run(Leftovers{window, base, launch, ranks->found()}, 1);
    MPIX_Dev_stats stats{};
    CHECK_MPI(MPIX_Dev_get_stats(ranks->domain, &stats, sizeof stats));
    EXPECT(stats.pending == (launch < Leftovers::launches ? here * Leftovers::left : 0));
    // The next launch of another process would send what this one counts.
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  ranks->domain.check();
  // Of those that nobody ever asks for the end of the domain tells.
  ranks->run(Untaken{window, ranks->found()}, 1);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  test::Capture log(2);
  ranks.reset();
  const std::string said = log.end();
  EXPECT(said.find("MPIX_Dev_free: 6 notifications for ranks of this process were never asked for") !=
         std::string::npos);
}

// ---- more than lanes hold ----------------------------------------------------------------------------

/// Rank 0 sends each of the others more than their lanes hold, and they ask for the last of it first.
struct OneToAll {
  static constexpr int each = 150;
  static constexpr std::size_t part = 64 * (each + 1);
  MPIX_Dev_win window;
  char* base;
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const int n = static_cast<int>(c.p.ranks), me = static_cast<int>(c.rank);
    char* const mine = base + (c.rank - c.p.first_rank) * part;
    char* const from = mine + 64 * each;
    for (int i = 0; me == 0 && i < each; ++i)
      for (int target = 1; target < n; ++target) {
        set(c, from, 40, static_cast<char>(target + i));
        const std::size_t at = 64 * static_cast<std::size_t>(i);
        DOMAIN_EXPECT(c, f, MPIX_Dev_put_notify(&c, window, target, at, 40, from, i) == MPI_SUCCESS);
      }
    for (int k = 0; me != 0 && k < each; ++k) {
      const int i = k == 0 ? each - 1 : k - 1;
      MPIX_Dev_status status{};
      const int tag = k == 0 ? i : MPIX_DEV_ANY_TAG;
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait_status(&c, window, 0, tag, 1, &status) == MPI_SUCCESS);
      DOMAIN_EXPECT(c, f, status.tag == i && test::is(mine + 64 * i, 40, static_cast<char>(me + i)));
    }
    test::count(c, f);
  }
};

/// Eight ranks send to rank 0 as fast as they can, which takes one after another of any source. What lies in front of a
/// lane comes when each other lane had its turn; and what a rank has sent, and says so, behind what its lane holds.
struct AllToOne {
  static constexpr int origins = 8, each = 150, lane_holds = 8, most_processes = 9;
  MPIX_Dev_win window;
  std::uint64_t* sent;  ///< of rank 0: by source
  int here;             ///< ranks of each process
  test::Findings* findings;

  MPIX_DEV_METHOD void operator()(MPIX_Dev_ctx& c) const {
    test::Findings& f = findings[c.rank - c.p.first_rank];
    const int me = static_cast<int>(c.rank);
    // They begin when rank 0 has, which sets nothing aside then.
    if (me == 0) {
      for (int source = 1; source <= origins; ++source)
        DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, source, 0) == MPI_SUCCESS);
      take(c, f);
    } else if (me <= origins) {
      DOMAIN_EXPECT(c, f, MPIX_Dev_wait(&c, window, 0, 0, 1) == MPI_SUCCESS);
      auto* const told = static_cast<std::uint64_t*>(MPIX_Dev_ptr(&c, window, 0, 8 * static_cast<std::size_t>(me)));
      for (int i = 0; i < each; ++i) {
        DOMAIN_EXPECT(c, f, MPIX_Dev_notify(&c, window, 0, i) == MPI_SUCCESS);
        if (told && mpix::dev::is_first(c)) mpix::store_release(told, static_cast<std::uint64_t>(i + 1));
      }
    }
    test::count(c, f);
  }

  MPIX_DEV_METHOD static bool is_in_front(const MPIX_Dev_ctx& c, int process) {
    using namespace mpix::dev;
    const auto p = static_cast<std::uint32_t>(process);
    const std::uint64_t head = heads_of(c.inbox)[p];
    std::uint64_t data[2];
    const mpix::Line* const lane = lane_of(c, reinterpret_cast<char*>(c.inbox), p);
    return mpix::lines_arrived(lane + index_of(c, head), lap_of(c, head), data) == 3;
  }

  MPIX_DEV_METHOD void take(MPIX_Dev_ctx& c, test::Findings& f) const {
    int taken[origins + 1] = {}, behind[origins + 1] = {}, passed_over[most_processes] = {};
    const int near = static_cast<int>(c.p.processes);
    for (int k = 0; k < origins * each; ++k) {
      bool is_there[origins + 1], is_first[most_processes];
      for (int source = 1; source <= origins; ++source)
        is_there[source] = mpix::load_acquire(sent + source) > static_cast<std::uint64_t>(taken[source]);
      for (int process = 0; process < near; ++process) is_first[process] = is_in_front(c, process);
      MPIX_Dev_status status{};
      const int result = MPIX_Dev_wait_status(&c, window, MPIX_DEV_ANY_SOURCE, MPIX_DEV_ANY_TAG, 1, &status);
      if (result != MPI_SUCCESS || status.source < 1 || status.source > origins) {
        test::fault(c, f, __LINE__, static_cast<std::uint64_t>(result), static_cast<std::uint64_t>(status.source));
        return;
      }
      DOMAIN_EXPECT(c, f, status.tag == taken[status.source]);
      ++taken[status.source];
      const int of = status.source / here;
      behind[status.source] = passed_over[of] = 0;
      for (int source = of * here; source < (of + 1) * here; ++source)
        if (source >= 1 && source <= origins && source != status.source && is_there[source] && of < near)
          DOMAIN_EXPECT(c, f, ++behind[source] <= lane_holds);
      // On a GPU what was taken last may still lie in front; and there may be a lane of other nodes.
      for (int process = 0; process < near; ++process)
        if (process != of && is_first[process]) DOMAIN_EXPECT(c, f, ++passed_over[process] <= near + 2);
    }
  }
};

void floods() {
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "mpix_dev_lane_lines", "16"));
  CHECK_MPI(MPI_Info_set(info, "mpix_dev_inline", "40"));
  const int here = (AllToOne::origins + test::processes) / test::processes;
  test::Ranks ranks(here, info);
  CHECK_MPI(MPI_Info_free(&info));
  char* const base = ranks.domain.allocate(OneToAll::part * static_cast<std::size_t>(here));
  const MPIX_Dev_win window = ranks.domain.window_over(base, OneToAll::part);
  ranks.run(OneToAll{window, base, ranks.found()}, 1);
  auto* const sent =
      reinterpret_cast<std::uint64_t*>(ranks.domain.allocate(OneToAll::part * static_cast<std::size_t>(here)));
  const MPIX_Dev_win words = ranks.domain.window_over(reinterpret_cast<char*>(sent), OneToAll::part);
  ranks.run(AllToOne{words, sent, here, ranks.found()}, 1);
  ranks.domain.check();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace

int main(int argc, char** argv) {
  return test::main_of(argc, argv, [](const std::string& what) {
    if (what == "warp")
      warp();
    else if (what == "groups")
      groups();
    else if (what == "leftovers")
      leftovers();
    else if (what == "floods")
      floods();
    else
      EXPECT(!"a known argument");
  });
}
