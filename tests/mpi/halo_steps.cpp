// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Halos that live for many exchanges; every cell is compared with what it has to be.
//
//   mpiexec -n N halo_steps steps [STEPS [ROUTE]]
//                                           one launch for many; stopped early, begun again, exchanges between them
//   mpiexec -n N halo_steps own [STEPS [ROUTE]]
//                                           a kernel of the program exchanges by itself, in both ways
//   mpiexec -n N halo_steps beside          two halos at once, beside stream epochs
//   mpiexec -n N halo_steps wrong           wrong calls
//   mpiexec -n N halo_steps never           steps that are never ready: a report, and an end
//   mpiexec -n N halo_steps in_turns        processes that use a GPU in turns: steps are refused, exchanges are not
#include <algorithm>
#include <chrono>
#include <thread>

#include "support/halo_cube.h"
#include "support/streams.h"

namespace {

void run_steps(const CubeHalo& one, int steps, void* stream) {
  for (int step = 0; step < steps; ++step) {
    one.fill(stream);
    CHECK_MPI(MPIX_Halo_ready_stream(one.halo(), stream));
    CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), stream));
    one.compare(stream);
  }
}

struct Nap {
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team&) const {
    for (const std::uint64_t begin = MPIX_Dev_clock(); MPIX_Dev_clock() - begin < 20000000;)
      support::let_other_blocks_run();
  }
};

void run_exchanges(const CubeHalo& one, int count) {
  for (int i = 0; i < count; ++i) {
    one.fill(nullptr);
    CHECK_MPI(MPIX_Halo_exchange_stream(one.halo(), nullptr));
    one.compare(nullptr);
  }
}

void steps(int wanted) {
  const int most = wanted > 0 ? wanted : 200;
  support::load_blocks<Nap>();
  for (const Keys& keys : {Keys{}, Keys{{"mpix_halves", "2"}, {"mpix_form", "stream"}, {"mpix_packers", "3"}},
                           Keys{{"mpix_form", "barrier"}, {"mpix_packers", "4"}, {"mpix_chunk", "96"}},
                           Keys{{"mpix_buffers", "copied"}, {"mpix_halves", "2"}, {"mpix_route", "mpi"}}}) {
    support::Stream beside;
    CubeHalo one(cube_of(8, 2, 5, 4, 3), keys);
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), most, beside.handle()));
    run_steps(one, most, nullptr);
    support::synchronize();
    std::uint64_t all = static_cast<std::uint64_t>(most);
    one.expect(all);
    // Again, in a stream that has ended meanwhile; and fewer than were begun.
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1000, beside.handle()));
    run_steps(one, 10, nullptr);
    CHECK_MPI(MPIX_Halo_end_stream(one.halo(), nullptr));
    support::synchronize();
    one.expect(all += 10);
    run_exchanges(one, 5);
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 0, beside.handle()));
    // Stopped before its stream has come to it: the steps that are made ready meanwhile are the next launch's.
    support::launch_blocks(Nap{}, 1, 1, beside.handle());
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1, beside.handle()));
    CHECK_MPI(MPIX_Halo_end_stream(one.halo(), nullptr));
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 3, beside.handle()));
    run_steps(one, 3, nullptr);
    // Launches in streams that nothing orders: they count from each other's end.
    support::Stream other;
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 2, other.handle()));
    run_steps(one, 2, nullptr);
    CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), nullptr));
    support::synchronize();
    one.expect(all += 10);
    EXPECT(one.stats().exchanges == all);
    // Exchanges behind a launch that was ended before its stream came to it; and then a launch behind both.
    support::launch_blocks(Nap{}, 1, 1, beside.handle());
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 4, beside.handle()));
    CHECK_MPI(MPIX_Halo_end_stream(one.halo(), nullptr));
    run_exchanges(one, 2);
    support::synchronize();
    beside.synchronize();
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1, beside.handle()));
    run_steps(one, 1, nullptr);
    support::synchronize();
    one.expect(all += 3);
    // Several at once, of the same data.
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 20, beside.handle()));
    one.fill(nullptr);
    for (int step = 0; step < 20; ++step) CHECK_MPI(MPIX_Halo_ready_stream(one.halo(), nullptr));
    CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), nullptr));
    one.compare(nullptr);
    support::synchronize();
    one.expect(++all);
    // An exchange right behind the last step, which is over before its launch is.
    const int turns = std::min(most, 300);
    for (int turn = 0; turn < turns; ++turn) {
      CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1, beside.handle()));
      run_steps(one, 1, nullptr);
      run_exchanges(one, 1);
    }
    support::synchronize();
    one.expect(all += 2 * static_cast<std::uint64_t>(turns));
    // By more streams than there are words for, each of which is gone as soon as it waits; a few at a time, as a GPU
    // has few queues for streams that wait.
    const int gone = 100;
    for (int turn = 1; turn <= gone; ++turn) {
      CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1, beside.handle()));
      one.fill(nullptr);
      CHECK_MPI(MPIX_Halo_ready_stream(one.halo(), nullptr));
      {
        support::Stream waits;
        if (turn % 20 == 0) support::launch_blocks(Nap{}, 1, 1, waits.handle());
        CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), waits.handle()));
      }
      CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), nullptr));
      one.compare(nullptr);
      if (turn % 3 == 0) support::synchronize();
    }
    support::synchronize();
    one.expect(all += static_cast<std::uint64_t>(gone));
    // Gone before the stream has come to its wait.
    CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 1, beside.handle()));
    one.fill(nullptr);
    CHECK_MPI(MPIX_Halo_ready_stream(one.halo(), nullptr));
    support::launch_blocks(Nap{}, 1, 1);
    CHECK_MPI(MPIX_Halo_wait_stream(one.halo(), nullptr));
    one.compare(nullptr);
    CHECK_MPI(MPIX_Halo_free(one.handle()));
    CubeHalo next(cube_of(8, 2, 5, 4, 3), keys);  // in what was its memory
    support::synchronize();
    one.expect(++all);
    // In a graph alone, of which the service has not heard when it looks for the last time.
    if (support::Captured::is_possible) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      support::Captured graph(beside, [&] {
        next.fill(beside.handle());
        CHECK_MPI(MPIX_Halo_exchange_stream(next.halo(), beside.handle()));
        next.compare(beside.handle());
      });
      for (int i = 0; i < 3; ++i) graph.launch();
      support::synchronize();
      next.expect(3);
    }
  }
}

/// A kernel that stays: the whole exchange by all blocks, or message by message.
struct Own {
  Fill fill;
  Compare compare;
  MPIX_Dev_halo halo;
  int steps;
  bool by_message;
  std::uint64_t* results;  ///< calls that failed; exchanges before
  MPIX_DEV_METHOD void operator()(const MPIX_Dev_team& team) const {
    const std::uint64_t before = MPIX_Dev_halo_begin(team, halo);
    if (team.block == 0 && team.thread == 0) results[1] = before;
    int failed = 0;
    for (int i = 1; i <= steps; ++i) {
      const std::uint64_t step = before + static_cast<std::uint64_t>(i);
      fill.fill(team, step);
      failed |= MPIX_Dev_halo_sync(team, halo);
      if (by_message) {
        for (unsigned m = team.block; m < 26; m += team.blocks) failed |= MPIX_Dev_halo_send(team, halo, m, step);
        for (unsigned m = team.block; m < 26; m += team.blocks) failed |= MPIX_Dev_halo_receive(team, halo, m, step);
      } else {
        failed |= MPIX_Dev_halo_exchange(team, halo, step);
      }
      failed |= MPIX_Dev_halo_sync(team, halo);
      compare.compare(team, step);
      failed |= MPIX_Dev_halo_sync(team, halo);
    }
    if (MPIX_Dev_halo_send(team, halo, 26, before) != MPIX_DEV_ARG) failed = 1;
    if (failed != 0 && team.thread == 0) (void)mpix::fetch_add_on_device(results, 1);
  }
};

void own(int wanted) {
  const int count = wanted > 0 ? wanted : 40, blocks = support::ranks_are_blocks ? 20 : 4;
  auto* const results = static_cast<std::uint64_t*>(support::allocate_on_device(16));
  for (const Keys& keys :
       {Keys{}, Keys{{"mpix_form", "barrier"}, {"mpix_packers", "3"}},
        Keys{{"mpix_halves", "2"}, {"mpix_chunk", "64"}, {"mpix_buffers", "copied"}, {"mpix_route", "mpi"}}}) {
    CubeHalo one(cube_of(8, 3, 40, 6, 7), keys);
    Own kernel{one.fill(), one.compare(), {}, count, false, results};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the service of a halo without exchanges sleeps
    CHECK_MPI(MPIX_Halo_get_device(one.halo(), &kernel.halo));
    std::uint64_t all = 0, found[2];
    for (const bool by_message : {false, true, false}) {
      kernel.by_message = by_message;
      support::launch_blocks(kernel, blocks, 256);
      support::synchronize();
      support::to_host(found, results, sizeof found);
      EXPECT(found[0] == 0);
      EXPECT(found[1] == all);
      one.expect(0);  // fills by launches of their own
      all += static_cast<std::uint64_t>(count);
      CHECK_MPI(MPIX_Halo_exchange_stream(one.halo(), nullptr));
      ++all;
    }
    support::synchronize();
  }
  support::release_on_device(results);
}

/// Halos that differ, and a window, each in streams of their own.
void beside(int) {
  support::Stream first, second, other;
  CubeHalo one(cube_of(8, 1, 4, 4, 4), {{"mpix_halves", "2"}}), two(cube_of(4, 2, 7, 5, 3), {{"mpix_packers", "2"}}),
      three(cube_of(2, 1, 3, 3, 3), {{"mpix_route", "mpi"}});
  auto* const memory = static_cast<std::uint64_t*>(support::allocate_on_device(16));
  MPI_Win win = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create(memory, 16, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  MPI_Group all = MPI_GROUP_NULL, next = MPI_GROUP_NULL, last = MPI_GROUP_NULL;
  CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  CHECK_MPI(MPI_Group_incl(all, 1, &to, &next));
  CHECK_MPI(MPI_Group_incl(all, 1, &from, &last));
  constexpr int count = 60;
  CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), count, first.handle()));
  CHECK_MPI(MPIX_Halo_begin_stream(two.halo(), count, second.handle()));
  for (int step = 0; step < count; ++step) {
    run_steps(one, 1, nullptr);
    run_steps(two, 1, other.handle());
    three.fill(nullptr);
    CHECK_MPI(MPIX_Halo_exchange_stream(three.halo(), nullptr));
    three.compare(nullptr);
    CHECK_MPI(MPIX_Win_post_stream(last, win, nullptr));
    CHECK_MPI(MPI_Win_start(next, MPIX_MODE_STREAM, win));
    CHECK_MPI(MPI_Put(memory, 1, MPI_UINT64_T, to, 1, 1, MPI_UINT64_T, win));
    CHECK_MPI(MPIX_Win_complete_stream(win, nullptr));
    CHECK_MPI(MPIX_Win_wait_stream(win, nullptr));
  }
  support::synchronize();
  for (support::Stream* const stream : {&first, &second, &other}) stream->synchronize();
  for (const CubeHalo* const halo : {&one, &two, &three}) halo->expect(count);
  CHECK_MPI(MPI_Win_free(&win));
  for (MPI_Group* const group : {&all, &next, &last}) CHECK_MPI(MPI_Group_free(group));
  support::release_on_device(memory);
}

void wrong(int) {
  support::Stream beside;
  CubeHalo one(cube_of(8, 1, 3, 3, 3), {});
  MPIX_Halo halo = one.halo();
  EXPECT_ERROR(MPIX_Halo_begin_stream(MPIX_HALO_NULL, 1, beside.handle()), MPI_ERR_ARG, "no such halo");
  EXPECT_ERROR(MPIX_Halo_begin_stream(halo, -1, beside.handle()), MPI_ERR_ARG, "-1 steps");
  EXPECT_ERROR(MPIX_Halo_ready_stream(halo, nullptr), MPI_ERR_OTHER, "no step is to come");
  EXPECT_ERROR(MPIX_Halo_get_device(halo, nullptr), MPI_ERR_ARG, "no place");
  CHECK_MPI(MPIX_Halo_wait_stream(halo, nullptr));
  CHECK_MPI(MPIX_Halo_end_stream(halo, nullptr));
  CHECK_MPI(MPIX_Halo_begin_stream(halo, 3, beside.handle()));
  EXPECT_ERROR(MPIX_Halo_begin_stream(halo, 3, beside.handle()), MPI_ERR_OTHER, "3 steps");
  EXPECT_ERROR(MPIX_Halo_exchange_stream(halo, nullptr), MPI_ERR_OTHER, "3 steps");
  EXPECT_ERROR(MPIX_Halo_free(&halo), MPI_ERR_OTHER, "3 steps");
  EXPECT(halo == one.halo());
  EXPECT_ERROR(MPIX_Halo_ready_stream(halo, beside.handle()), MPI_ERR_ARG, "wait for itself");
  EXPECT_ERROR(MPIX_Halo_end_stream(halo, beside.handle()), MPI_ERR_ARG, "wait for itself");
  run_steps(one, 1, nullptr);
  EXPECT_ERROR(MPIX_Halo_wait_stream(halo, beside.handle()), MPI_ERR_ARG, "wait for itself");
  run_steps(one, 2, nullptr);
  EXPECT_ERROR(MPIX_Halo_ready_stream(halo, nullptr), MPI_ERR_OTHER, "no step is to come");
  CHECK_MPI(MPIX_Halo_wait_stream(halo, beside.handle()));  // the launch ends by itself
  support::synchronize();
  beside.synchronize();
  one.expect(3);
}

/// With MPIX_TIMEOUT=1 MPIX_ON_TIMEOUT=error.
void never(int) {
  support::Stream beside;
  CubeHalo one(cube_of(8, 1, 3, 3, 3), {{"mpix_packers", "3"}});
  CHECK_MPI(MPIX_Halo_begin_stream(one.halo(), 5, beside.handle()));
  run_steps(one, 2, nullptr);
  support::synchronize();
  one.expect(2);
  synchronize_broken(beside.handle());
  const int freed = MPIX_Halo_free(one.handle());
  EXPECT_ERROR(freed, MPI_ERR_OTHER, "steps 3 to 5 were not made ready");
  EXPECT(one.halo() == MPIX_HALO_NULL);
}

void in_turns(int) {
  support::Stream beside;
  CubeHalo one(cube_of(8, 1, 3, 3, 3), {});
  const int code = MPIX_Halo_begin_stream(one.halo(), 3, beside.handle());
  EXPECT_ERROR(code, MPI_ERR_UNSUPPORTED_OPERATION, "uses the same GPU, in turns with this one");
  EXPECT_ERROR(code, MPI_ERR_UNSUPPORTED_OPERATION, "or use MPIX_Halo_exchange_stream");
  EXPECT_ERROR(MPIX_Halo_ready_stream(one.halo(), nullptr), MPI_ERR_OTHER, "no step is to come");
  run_exchanges(one, 3);
  support::synchronize();
  one.expect(3);
}

}  // namespace

int main(int argc, char** argv) {
  return run_case(
      argc, argv,
      {{"steps", steps}, {"own", own}, {"beside", beside}, {"wrong", wrong}, {"never", never}, {"in_turns", in_turns}});
}
