// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// MPI_THREAD_MULTIPLE.
#include <atomic>
#include <string>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

constexpr int thread_count = 4;

struct Exchange {
  explicit Exchange(int i, MPI_Comm comm = MPI_COMM_WORLD)
      : bytes(i % 2 == 0 ? 100 : 30000),
        window(all_memories[i % 4], bytes, 1, comm),
        ring(window, window.base(), bytes, static_cast<std::uint64_t>(i)) {}

  void run(int epochs) {
    for (int k = 0; k < epochs; ++k) {
      if (k % 3 == 0) {
        ring.fused_epoch(stream);
      } else {
        ring.epoch(stream);
      }
      if (k % 50 == 49) stream.synchronize();
    }
    stream.synchronize();
  }

  const std::size_t bytes;
  Window window;
  Ring ring;
  Stream stream;
};

}  // namespace

TEST_CASE("each thread has its window and its stream") {
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int i = 0; i < thread_count; ++i) exchanges.push_back(std::make_unique<Exchange>(i));
  in_threads(thread_count, [&](int i) { exchanges[static_cast<std::size_t>(i)]->run(scaled(100)); });
}

TEST_CASE("each thread has its window, and all share a stream") {
  std::vector<std::unique_ptr<Window>> windows;
  std::vector<std::unique_ptr<Ring>> rings;
  for (int i = 0; i < thread_count; ++i) {
    windows.push_back(std::make_unique<Window>(Memory::device, 64));
    rings.push_back(std::make_unique<Ring>(*windows.back(), windows.back()->base(), 64, i));
  }
  // One stream runs in the order of the calls, which differs from rank to rank here: so an epoch
  // may only wait for what does not wait for it. The sends go first, all of them eager.
  Stream stream;
  const Group to(right_of(rank()));
  const Group from(left_of(rank()));
  Buffer values(thread_count * sizeof(int));
  for (int round = scaled(20); round > 0; --round) {
    in_threads(thread_count, [&](int i) {
      Window& window = *windows[static_cast<std::size_t>(i)];
      int* value = values.as<int>() + i;
      stream.fill(value, sizeof(int), ring_data(rank(), round, static_cast<std::uint64_t>(i)));
      MPI_OK(MPIX_Win_post_stream(from, window, stream));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(value, 1, MPI_INT, right_of(rank()), 0, 1, MPI_INT, window));
    });
    in_threads(thread_count,
               [&](int i) { MPI_OK(MPIX_Win_complete_stream(*windows[static_cast<std::size_t>(i)], stream)); });
    in_threads(thread_count, [&](int i) {
      Window& window = *windows[static_cast<std::size_t>(i)];
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      stream.check(window.base(), sizeof(int), ring_data(left_of(rank()), round, static_cast<std::uint64_t>(i)),
                   HERE("round " << round << " of thread " << i));
    });
  }
  stream.synchronize();
}

TEST_CASE("several threads put in one access epoch") {
  constexpr int puts = 25;  // of each thread
  const int epochs = scaled(10);
  for (Memory memory : all_memories) {
    for (const int length : {1, 500}) {
      const std::size_t words = static_cast<std::size_t>(length) * thread_count * puts;
      Window window(memory, words * sizeof(int), sizeof(int));
      Buffer source(words * sizeof(int));
      const Group to(right_of(rank()));
      const Group from(left_of(rank()));
      Stream stream;
      for (int k = 1; k <= epochs; ++k) {
        MPI_OK(MPIX_Win_post_stream(from, window, stream));
        stream.fill(source.data(), source.size(), ring_data(rank(), k));
        MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
        in_threads(thread_count, [&](int i) {
          for (int p = 0; p < puts; ++p) {
            const int at = (p * thread_count + i) * length;
            MPI_OK(MPI_Put(source.as<int>() + at, length, MPI_INT, right_of(rank()), at, length, MPI_INT, window));
          }
        });
        MPI_OK(MPIX_Win_complete_stream(window, stream));
        MPI_OK(MPIX_Win_wait_stream(window, stream));
        stream.check(window.base(), source.size(), ring_data(left_of(rank()), k),
                     HERE("epoch " << k << ", " << name(memory)));
      }
      stream.synchronize();
      MPIX_Win_stats stats;
      MPI_OK(MPIX_Win_get_stats(window, &stats, sizeof stats));
      CHECK(stats.puts == static_cast<unsigned>(epochs) * thread_count * puts);
    }
  }
}

TEST_CASE("threads create and free windows and streams at the same time") {
  constexpr int count = 2;
  MPI_Comm comms[count];
  for (MPI_Comm& comm : comms) MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  in_threads(count, [&](int i) {
    for (int turn = 0; turn < 3; ++turn) Exchange(i + turn, comms[i]).run(10);
  });
  for (MPI_Comm& comm : comms) MPI_OK(MPI_Comm_free(&comm));
}

namespace {

std::atomic<int> refusals{0};

extern "C" void note_class(MPI_Comm*, int* code, ...) {
  int its_class = MPI_SUCCESS;
  MPI_Error_class(*code, &its_class);
  if (its_class == MPI_ERR_ROOT) ++refusals;
}

}  // namespace

// MPI may call handlers under a lock that libmpix's calls need, too.
TEST_CASE("an error handler asks for the class of an error while another thread meets new ones") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_OK(MPI_Comm_create_errhandler(note_class, &handler));
  MPI_OK(MPI_Comm_set_errhandler(comm, handler));
  Window window(Memory::device, 64);
  MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  constexpr int texts = 400;  // codes carry fewer than 500
  std::atomic<bool> ends{false};
  refusals = 0;
  int calls = 0;
  in_threads(2, [&](int thread) {
    if (thread == 0) {
      Stream stream;
      for (int i = 0; i < texts; ++i) {
        const std::string name = "window of many names " + std::to_string(i);
        MPI_OK(MPI_Win_set_name(window, name.c_str()));
        EXPECT(MPIX_Win_complete_stream(window, stream) != MPI_SUCCESS, "no epoch is open");
      }
      ends = true;
    } else {
      for (; !ends; ++calls) MPI_Bcast(nullptr, 0, MPI_BYTE, size() + 7, comm);
    }
  });
  CHECK(refusals == calls);
  MPI_OK(MPI_Errhandler_free(&handler));
  MPI_OK(MPI_Comm_free(&comm));
}

// A callback may call MPI, also on a window, under MPI_THREAD_MULTIPLE.
TEST_CASE("host-stream callbacks call MPI and enqueue epochs") {
  NEEDS(device().is_host(), "callbacks are of host streams");
  Window window(Memory::device, 64);
  Ring ring(window, window.base(), 64);
  Stream first, second;
  launch_on_host(first, [&] {
    for (int k = 0; k < 20; ++k) ring.epoch(second);
    double mine = rank();
    double sum = 0;
    MPI_OK(MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == size() * (size() - 1) / 2.0, "all-reduce in a callback");
  });
  first.synchronize();
  second.synchronize();
}
