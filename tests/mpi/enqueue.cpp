// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Enqueueing does not wait for a peer: 2,000 epochs (150 on a GPU, or between nodes) are enqueued before it has begun.
// The peer begins when it has heard that they are, so that no clock decides. Meanwhile the library reports that it
// waits, as MPIX_TIMEOUT is shorter than the peer sleeps then, and goes on.
#include <cstdlib>

#include "support/awake.h"
#include "support/capture.h"
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

const bool settings_made = [] {
  setenv("MPIX_TIMEOUT", "0.3", 1);
  setenv("MPIX_ON_TIMEOUT", "report", 1);
  return true;
}();

/// A stream of a GPU takes some 1,000 launches ahead, where it is used in turns with waits between, and a network 512
/// operations.
int epochs() {
  if (parameter("TEST_GPU_IN_TURNS", 0) != 0) return 75;
  return device().is_host() && parameter("MPIX_NODE_SIZE", 0) == 0 ? 2000 : 150;
}
const double nap = 1.0 * slowdown();

bool is_late() { return rank() == size() - 1; }

/// Enqueue all epochs on every rank; the last rank begins when the others have enqueued theirs, and has slept then.
template <class Enqueue>
void enqueue_all(Enqueue enqueue) {
  constexpr int tag = 1;
  barrier();
  if (is_late()) {
    const test::AwakeClock clock;
    for (int other = 0; other < size() - 1; ++other) {
      int enqueued = 0;
      while (enqueued == 0 && clock.seconds() < 20.0 * slowdown()) {
        MPI_OK(MPI_Iprobe(other, tag, MPI_COMM_WORLD, &enqueued, MPI_STATUS_IGNORE));
        if (enqueued == 0) usleep(1000);
      }
      INFO("rank " << other << " waits for the late rank in calls that enqueue");
      CHECK(enqueued == 1);
    }
    usleep(static_cast<useconds_t>(nap * 1e6));
  }
  for (int k = 1; k <= epochs(); ++k) enqueue(k);
  if (!is_late()) {
    MPI_OK(MPI_Send(nullptr, 0, MPI_INT, size() - 1, tag, MPI_COMM_WORLD));
  } else {
    for (int other = 0; other < size() - 1; ++other)
      MPI_OK(MPI_Recv(nullptr, 0, MPI_INT, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
}

}  // namespace

TEST_CASE("epochs are enqueued at once") {
  NEEDS_RANKS(2);
  REQUIRE(settings_made);
  const std::size_t bytes = GENERATE(std::size_t{256}, std::size_t{20000});
  Window window(Memory::device, bytes);
  Ring ring(window, window.base(), bytes);
  Stream stream;
  Capture errors(STDERR_FILENO);
  enqueue_all([&](int) { ring.epoch(stream); });
  stream.synchronize();
  const std::string report = errors.end();
  // The neighbours of the late rank missed it; they told so, and waited on.
  if (left_of(rank()) == size() - 1) {
    const std::string missing = "rank " + std::to_string(size() - 1);
    INFO("report: " << report);
    CHECK(report.find(missing) != std::string::npos);
    CHECK(report.find("still waiting") != std::string::npos);
  }
  MPIX_Win_stats stats;
  MPI_OK(MPIX_Win_get_stats(window, &stats, sizeof stats));
  CHECK(stats.access_epochs == static_cast<unsigned>(epochs()));
  CHECK(stats.exposure_epochs == static_cast<unsigned>(epochs()));
  CHECK(stats.plans_built == 1);
}

TEST_CASE("epochs with a new group each are enqueued at once") {
  NEEDS_RANKS(2);
  Window window(Memory::device, 8 * sizeof(int), sizeof(int));
  Buffer source(sizeof(int));
  Stream stream;
  Capture errors(STDERR_FILENO);
  enqueue_all([&](int k) {
    // The distance to the target changes with every epoch.
    const int to = (rank() + k) % size();
    const int from = (rank() + size() - k % size()) % size();
    const Group targets(to);
    const Group origins(from);
    MPI_OK(MPIX_Win_post_stream(origins, window, stream));
    MPI_OK(MPI_Win_start(targets, MPIX_MODE_STREAM, window));
    stream.fill(source.data(), sizeof(int), ring_data(rank(), k));
    MPI_OK(MPI_Put(source.data(), 1, MPI_INT, to, k % 8, 1, MPI_INT, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    stream.check(window.as<int>() + k % 8, sizeof(int), ring_data(from, k), HERE("epoch " << k));
  });
  stream.synchronize();
  errors.end();
}
