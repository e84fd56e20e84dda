// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "device/host/grid.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "device/host/stream.h"

namespace mpix {
namespace {

thread_local std::optional<unsigned> block_of_thread;

/// Its threads are made when it is enqueued: afterwards nobody could be told that there are none to be had. They wait
/// for the stream.
struct Grid {
  void (*function)(const MPIX_Dev_team*, void*);
  void* argument;
  unsigned blocks;
  std::mutex mutex;
  std::condition_variable changed;
  enum class State { waits, runs, cancelled } state = State::waits;
  std::vector<std::thread> threads;

  void run(unsigned block) const {
    const MPIX_Dev_team team{block, blocks, 0, 1};
    block_of_thread = block;
    function(&team, argument);
    block_of_thread.reset();
  }
  void wait_and_run(unsigned block) {
    {
      std::unique_lock<std::mutex> hold(mutex);
      changed.wait(hold, [this] { return state != State::waits; });
      if (state == State::cancelled) return;
    }
    run(block);
  }
  void set(State next) {
    {
      const std::lock_guard<std::mutex> hold(mutex);
      state = next;
    }
    changed.notify_all();
  }
  void join() {
    for (std::thread& thread : threads) thread.join();
  }
};

/// On the stream's thread, which is the first block.
void run_grid(void* p) {
  const std::unique_ptr<Grid> grid(static_cast<Grid*>(p));
  grid->set(Grid::State::runs);
  grid->run(0);
  grid->join();
}

}  // namespace

std::optional<unsigned> block_of_grid() noexcept { return block_of_thread; }

void launch_grid(Stream stream, unsigned blocks, void (*function)(const MPIX_Dev_team*, void*), void* argument) {
  check_host_stream(stream);
  auto grid = std::make_unique<Grid>();
  grid->function = function;
  grid->argument = argument;
  grid->blocks = blocks;
  try {
    for (unsigned i = 1; i < blocks; ++i)
      grid->threads.push_back(start_thread("a grid", [g = grid.get(), i] { g->wait_and_run(i); }));
    host_stream_launch(stream, run_grid, grid.get());
  } catch (...) {
    grid->set(Grid::State::cancelled);
    grid->join();
    throw;
  }
  (void)grid.release();
}

}  // namespace mpix
