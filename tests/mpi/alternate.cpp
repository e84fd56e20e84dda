// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Stream epochs and ordinary epochs in turn on one window, with a stream synchronization between.
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr std::size_t bytes = 20000;  // some of it direct

/// Ordinary epochs that move the same data as a ring epoch.
class OrdinaryRing {
 public:
  OrdinaryRing(MPI_Win win, char* window)
      : win_(win), window_(window), source_(bytes), to_(right_of(rank())), from_(left_of(rank())) {}

  void post_start_complete_wait() {
    fill();
    MPI_OK(MPI_Win_post(from_, 0, win_));
    MPI_OK(MPI_Win_start(to_, 0, win_));
    put();
    MPI_OK(MPI_Win_complete(win_));
    MPI_OK(MPI_Win_wait(win_));
    check("post/start/complete/wait");
  }

  void fence() {
    fill();
    MPI_OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win_));
    put();
    MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win_));
    check("fence");
  }

  void lock() {
    fill();
    barrier();  // the target's own epochs are over
    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, right_of(rank()), 0, win_));
    put();
    MPI_OK(MPI_Win_unlock(right_of(rank()), win_));
    barrier();
    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, rank(), 0, win_));
    check("lock");
    MPI_OK(MPI_Win_unlock(rank(), win_));
  }

  void lock_all_and_get() {
    ring_data(rank(), ++epochs_, salt).write(window_, bytes);
    barrier();
    MPI_OK(MPI_Win_lock_all(0, win_));
    MPI_OK(MPI_Get(source_.data(), int(bytes), MPI_BYTE, left_of(rank()), 0, int(bytes), MPI_BYTE, win_));
    MPI_OK(MPI_Win_flush(left_of(rank()), win_));
    EXPECT(ring_data(left_of(rank()), epochs_, salt).agrees(source_.data(), bytes) == bytes, "get");
    MPI_OK(MPI_Win_unlock_all(win_));
    barrier();
  }

 private:
  static constexpr std::uint64_t salt = 17;

  void fill() { ring_data(rank(), ++epochs_, salt).write(source_.data(), bytes); }
  void put() { MPI_OK(MPI_Put(source_.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, win_)); }
  void check(const char* how) {
    EXPECT(ring_data(left_of(rank()), epochs_, salt).agrees(window_, bytes) == bytes,
           how << ", ordinary epoch " << epochs_);
  }

  const MPI_Win win_;
  char* const window_;
  std::vector<char> source_;
  const Group to_;
  const Group from_;
  int epochs_ = 0;
};

void alternate(Memory memory) {
  // pinned memory of a GPU is what every MPI can reach
  NEEDS(device().is_host() || memory == Memory::other, "this MPI may be unable to reach memory of the GPU");
  Window window(memory, bytes);
  Ring ring(window, window.base(), bytes);
  OrdinaryRing ordinary(window, window.base());
  Stream stream;
  const auto stream_epochs = [&](int count) {
    for (int k = 0; k < count; ++k) ring.epoch(stream);
    stream.synchronize();
  };
  for (int round = 0; round < 3; ++round) {
    ordinary.post_start_complete_wait();
    stream_epochs(1);
    ordinary.post_start_complete_wait();
    stream_epochs(5);
    ordinary.fence();
    stream_epochs(2);
    ordinary.lock();
    stream_epochs(3);
    ordinary.lock_all_and_get();
    stream_epochs(1);
  }
}

}  // namespace

TEST_CASE("alternating epochs, window over memory that peers cannot map") { alternate(Memory::unmapped); }
TEST_CASE("alternating epochs, window in part of an allocation") { alternate(Memory::part); }
TEST_CASE("alternating epochs, allocated device window") { alternate(Memory::device); }
TEST_CASE("alternating epochs, allocated window, or one over pinned memory") { alternate(Memory::other); }

TEST_CASE("ordinary epochs on one window while stream epochs run on another") {
  Window window(Memory::device, bytes);
  Window other(device().is_host() ? Memory::device : Memory::other, bytes);
  Ring ring(window, window.base(), bytes);
  OrdinaryRing ordinary(other, other.base());
  Stream stream;
  if (rank() == 0) stream.delay(20000);
  for (int k = scaled(50); k > 0; --k) ring.epoch(stream);
  for (int k = 0; k < 3; ++k) {
    ordinary.fence();
    ordinary.post_start_complete_wait();
    ring.epoch(stream, [&] { ordinary.fence(); });
    ring.fused_epoch(stream, [&] { ordinary.post_start_complete_wait(); });
  }
  stream.synchronize();
}

// The two sides are independent: one may be ordinary while the other is a stream's.
TEST_CASE("a stream access epoch during an ordinary exposure epoch of nobody, and the reverse") {
  Window window(Memory::device, bytes);
  Ring ring(window, window.base(), bytes);
  Stream stream;
  for (int k = 0; k < 3; ++k) {
    MPI_OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, window));
    MPI_OK(MPI_Win_start(MPI_GROUP_EMPTY, MPIX_MODE_STREAM, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPI_Win_wait(window));
    MPI_OK(MPI_Win_start(MPI_GROUP_EMPTY, 0, window));
    MPI_OK(MPIX_Win_post_stream(MPI_GROUP_EMPTY, window, stream));
    MPI_OK(MPI_Win_complete(window));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    ring.epoch(stream);
    stream.synchronize();
  }
}
