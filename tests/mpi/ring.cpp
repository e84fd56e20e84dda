// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// The example of the reference paper: every rank puts to its right neighbour. All iterations are
// enqueued; one synchronization ends them.
#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

void exchange(Memory memory, std::size_t bytes, int epochs, bool fused) {
  Window window(memory, bytes);
  Ring ring(window, window.base(), bytes);
  Stream stream;
  for (int k = scaled(epochs); k > 0; --k) {
    if (fused) {
      ring.fused_epoch(stream);
    } else {
      ring.epoch(stream);
    }
  }
  stream.synchronize();
}

void exchange_in_every_memory(std::size_t bytes, int epochs) {
  for (Memory memory : all_memories) {
    alive(std::string("a window of memory: ") + name(memory));
    exchange(memory, bytes, epochs, false);
  }
}

}  // namespace

// Whether a size goes through the mailbox or straight into the window is a matter of
// MPIX_EAGER_SIZE.
TEST_CASE("ring, a byte") { exchange_in_every_memory(1, 300); }
TEST_CASE("ring, a cache line") { exchange_in_every_memory(64, 300); }
TEST_CASE("ring, a cache line and a byte") { exchange_in_every_memory(65, 300); }
TEST_CASE("ring, a page") { exchange_in_every_memory(4096, 300); }
TEST_CASE("ring, 16 KiB") { exchange_in_every_memory(16384, 100); }
TEST_CASE("ring, 16 KiB and a byte") { exchange_in_every_memory(16385, 100); }
TEST_CASE("ring, large") { exchange_in_every_memory(1 << 20, 20); }

TEST_CASE("ring, complete and wait in one call") {
  for (Memory memory : all_memories)
    for (std::size_t bytes : {8, 4096, 100000}) exchange(memory, bytes, 100, true);
}

TEST_CASE("ring, posts that ride in the next call") {
  for (Memory memory : all_memories)
    for (std::size_t bytes : {8, 100000}) {
      Window window(memory, bytes, 1, MPI_COMM_WORLD, 0, true);
      Ring ring(window, window.base(), bytes);
      Stream stream;
      for (int k = scaled(50); k > 0; --k) ring.epoch(stream);
      for (int k = scaled(50); k > 0; --k) ring.fused_epoch(stream);
      stream.synchronize();
    }
}

TEST_CASE("ring, many iterations") {
  exchange(Memory::device, 64, static_cast<int>(parameter("SOAK_EPOCHS", 3000)), false);
}

// With small data the origin does not wait for the post, and yet the window may not change before
// it.
TEST_CASE("data appears between post and wait only") {
  NEEDS_RANKS(2);
  const std::size_t bytes = GENERATE(std::size_t{8}, std::size_t{8000}, std::size_t{200000});
  for (Memory memory : all_memories) {
    Window window(memory, bytes);
    const Pattern before(key({7, static_cast<std::uint64_t>(rank())}));
    device().fill(device().own_stream(), window.base(), bytes, before);
    device().wait_for(device().own_stream());
    Ring ring(window, window.base(), bytes);
    Stream stream;
    // Odd ranks are late, so their left neighbours have long sent what they can.
    if (rank() % 2 == 1) stream.delay(20000);
    stream.check(window.base(), bytes, before,
                 HERE("the window of " << name(memory) << " changed before its exposure epoch"));
    ring.epoch(stream);
    stream.synchronize();
  }
}

// Origin buffers are read when the stream gets there, and may be reused when it is past complete.
TEST_CASE("origin buffers belong to the stream from start to complete") {
  const std::size_t bytes = GENERATE(std::size_t{24}, std::size_t{100000});
  Window window(Memory::device, bytes);
  Buffer source(bytes);
  Group to(right_of(rank()));
  Group from(left_of(rank()));
  Stream stream;
  for (int k = scaled(50); k > 0; --k) {
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM | MPI_MODE_NOCHECK, window));
    MPI_OK(MPI_Put(source.data(), static_cast<int>(bytes), MPI_BYTE, right_of(rank()), 0, static_cast<int>(bytes),
                   MPI_BYTE, window));
    stream.fill(source.data(), bytes, ring_data(rank(), k));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    stream.set(source.data(), bytes, '?');
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
  }
  stream.synchronize();
}

TEST_CASE("a null stream is the default stream") {
  Window window(Memory::device, 4096);
  Ring ring(window, window.base(), 4096);
  for (int k = scaled(100); k > 0; --k) ring.epoch(nullptr);
  Stream::synchronize(nullptr);
}
