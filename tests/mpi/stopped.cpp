// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// A job that is stopped for longer than MPIX_TIMEOUT, as batch systems do it, and goes on: nobody is late.
#include <mpix_collectives.h>
#include <mpix_device.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

const bool settings_made = [] {
  setenv("MPIX_TIMEOUT", std::to_string(3 * time_scale()).c_str(), 1);
  setenv("MPIX_ON_TIMEOUT", "error", 1);
  return true;
}();

/// Returns when this process has been stopped, and goes on.
void be_stopped() {
  using Clock = std::chrono::steady_clock;
  for (Clock::time_point last = Clock::now(), now = last; now - last < std::chrono::seconds(4 * time_scale());
       now = Clock::now()) {
    last = now;
    usleep(1000);
  }
}

void meet(MPIX_Dev_param param, void*) {
  MPIX_Dev_ctx ctx;
  EXPECT(MPIX_Dev_init(&ctx, param) == MPI_SUCCESS, "a rank begins");
  EXPECT(MPIX_Dev_barrier(&ctx, MPIX_DEV_WORLD) == MPI_SUCCESS, "ranks meet");
  MPIX_Dev_finish(&ctx);
}

}  // namespace

TEST_CASE("a job that is stopped for longer than the time-out goes on") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "a GPU goes on when its process is stopped");
  REQUIRE(settings_made);
  Window window(Memory::device, 64);
  Stream stream, other, third;
  MPIX_Dev domain = MPIX_DEV_NULL;
  MPI_OK(MPIX_Dev_create(MPI_COMM_WORLD, 1, MPI_INFO_NULL, &domain));
  Ring ring(window, window.base(), 64);
  ring.epoch(stream);
  MPI_OK(MPIX_Barrier_stream(MPI_COMM_WORLD, other));
  stream.synchronize();
  other.synchronize();
  Capture errors(STDERR_FILENO);
  const Group peer(1 - rank() % 2);
  if (rank() == 0) {
    MPI_OK(MPIX_Win_post_stream(peer, window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    MPI_OK(MPIX_Barrier_stream(MPI_COMM_WORLD, other));
    MPI_OK(MPIX_Dev_launch_host(domain, meet, nullptr, third));
  }
  int pids[2] = {static_cast<int>(getpid()), 0};
  MPI_OK(MPI_Bcast(&pids[0], 1, MPI_INT, 0, MPI_COMM_WORLD));
  pids[1] = static_cast<int>(getpid());
  MPI_OK(MPI_Bcast(&pids[1], 1, MPI_INT, 1, MPI_COMM_WORLD));
  if (rank() == 0) {
    const std::string both = std::to_string(pids[0]) + " " + std::to_string(pids[1]);
    const std::string command = "{ sleep 0.3; kill -STOP " + both + "; sleep " + std::to_string(6 * time_scale()) +
                                "; kill -CONT " + both + "; } > /dev/null 2>&1 &";
    REQUIRE(std::system(command.c_str()) == 0);
  }
  be_stopped();
  usleep(500000);  // a wait that looks late is told meanwhile
  if (rank() == 1) {
    MPI_OK(MPI_Win_start(peer, MPIX_MODE_STREAM, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Barrier_stream(MPI_COMM_WORLD, other));
    MPI_OK(MPIX_Dev_launch_host(domain, meet, nullptr, third));
  }
  stream.synchronize();
  other.synchronize();
  third.synchronize();
  const std::string told = errors.end();
  INFO(told);
  CHECK(told.empty());
  ring.epoch(stream);
  stream.synchronize();
  MPI_OK(MPIX_Dev_free(&domain));
}
