// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What matters where epochs travel as messages: sizes around those of a message, many puts, bursts and pauses, windows
// of some ranks, windows that end while something is on its way, and messages of the program's own.
#include <random>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

TEST_CASE("sizes around that of a message") {
  for (std::size_t bytes : {16384u, 32696u, 32704u, 32736u, 32737u, 32768u, 65536u, 99999u})
    for (Memory memory : {Memory::unmapped, Memory::device}) {
      Window window(memory, bytes);
      Ring ring(window, window.base(), bytes);
      Stream stream;
      for (int k = scaled(20); k > 0; --k) ring.epoch(stream);
      for (int k = scaled(20); k > 0; --k) ring.fused_epoch(stream);
      stream.synchronize();
    }
}

// More than a gathered message holds, and more records than a message does: many direct writes, and a large one
// between.
TEST_CASE("many puts in an epoch") {
  constexpr std::size_t piece = 40, pieces = 2000, large = 200000, bytes = piece * pieces + large;
  Window window(Memory::device, bytes);
  Buffer source(bytes);
  Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  for (int k = 1; k <= scaled(20); ++k) {
    stream.fill(source.data(), bytes, ring_data(rank(), k));
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    const auto put = [&](std::size_t at, std::size_t count) {
      MPI_OK(MPI_Put(source.data() + at, static_cast<int>(count), MPI_BYTE, right_of(rank()), static_cast<MPI_Aint>(at),
                     static_cast<int>(count), MPI_BYTE, window));
    };
    for (std::size_t i = 0; i < pieces / 2; ++i) put(i * piece, piece);
    put(pieces * piece, large);
    for (std::size_t i = pieces / 2; i < pieces; ++i) put(i * piece, piece);
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
  }
  stream.synchronize();
}

// One by one they would take as many operations of a network that counts them.
TEST_CASE("small puts go together") {
  struct Puts {
    int count, bytes;
  };
  const Puts puts = GENERATE(Puts{2048, 8}, Puts{8192, 8}, Puts{8192, 24}, Puts{8192, 128}, Puts{1024, 1024});
  CAPTURE(puts.count, puts.bytes);
  const std::size_t bytes = static_cast<std::size_t>(puts.count) * static_cast<std::size_t>(puts.bytes);
  Window window(Memory::device, bytes);
  Buffer source(bytes);
  Group to(right_of(rank())), from(left_of(rank()));
  Stream stream;
  constexpr int epochs = 5;
  for (int k = 1; k <= epochs; ++k) {
    stream.fill(source.data(), bytes, ring_data(rank(), k));
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    for (int i = 0; i < puts.count; ++i) {
      const int at = puts.bytes * (i * 5 % puts.count);  // in no order that could be made one put
      MPI_OK(MPI_Put(source.data() + at, puts.bytes, MPI_BYTE, right_of(rank()), at, puts.bytes, MPI_BYTE, window));
    }
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
  }
  stream.synchronize();
  MPIX_Win_stats stats{};
  MPI_OK(MPIX_Win_get_stats(window, &stats, sizeof stats));
  const char* network = std::getenv("MPIX_NIC");
  // a post, a message, and its signal; what the first post tells
  if (spans_nodes() && !goes_by_relay() && network && std::string(network) == "sockets")
    CHECK(stats.network_operations <= 3 * epochs + 1);
}

TEST_CASE("bursts and pauses") {
  std::mt19937 random(static_cast<unsigned>(parameter("SOAK_SEED", 1)) * 1000 + static_cast<unsigned>(rank()));
  std::mt19937 common(17);  // the same on all ranks
  Window small(Memory::device, 200), large(Memory::unmapped, 50000);
  Ring in_small(small, small.base(), small.bytes()), in_large(large, large.base(), large.bytes(), 5);
  Stream stream;
  for (int left = scaled(static_cast<int>(parameter("SOAK_EPOCHS", 4000))); left > 0;) {
    const int burst = std::min<int>(left, 1 + static_cast<int>(random() % 60));
    for (int k = burst; k > 0; --k, --left) {
      const unsigned pause = random() % 40;
      if (pause == 0) stream.delay(static_cast<int>(random() % 2000));
      if (pause == 1) stream.delay(20);
      const unsigned which = common() % 16;
      if (which == 0)
        in_large.epoch(stream);
      else if (which % 2)
        in_small.epoch(stream);
      else
        in_small.fused_epoch(stream);
    }
    stream.synchronize();
  }
}

TEST_CASE("windows of some ranks, in any order") {
  NEEDS_RANKS(2);
  // Rank 0 and each other rank in turn have a window, while the rest has long gone on.
  for (int other = 1; other < size(); ++other) {
    const bool mine = rank() == 0 || rank() == other;
    MPI_Comm pair = MPI_COMM_NULL;
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, mine ? 1 : MPI_UNDEFINED, rank(), &pair));
    if (!mine) continue;
    const int peer = rank() == 0 ? 1 : 0;
    {
      Window window(Memory::unmapped, 64, 1, pair);
      Values<std::uint64_t> value{0};
      Group partner(peer, pair);
      Stream stream;
      for (std::uint64_t k = 1; k <= 50; ++k) {
        value.write(&k, sizeof k);
        MPI_OK(MPIX_Win_post_stream(partner, window, stream));
        MPI_OK(MPI_Win_start(partner, MPIX_MODE_STREAM, window));
        MPI_OK(MPI_Put(value.data(), 8, MPI_BYTE, peer, 8, 8, MPI_BYTE, window));
        MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
        stream.synchronize();
        if (contents<std::uint64_t>(window.base() + 8, 1)[0] != k) fail(__FILE__, __LINE__, "the data of the partner");
      }
      checked(50);
    }
    MPI_OK(MPI_Comm_free(&pair));
  }
}

TEST_CASE("windows that end as soon as their epochs have") {
  constexpr std::size_t bytes = 96;
  std::vector<std::unique_ptr<Buffer>> memories;
  for (int k = 1; k <= scaled(100); ++k) {
    // The posts of the epochs are awaited by nobody, as small puts are not, and may be late.
    memories.push_back(std::make_unique<Buffer>(bytes));
    Buffer& memory = *memories.back();
    MPI_Win win;
    MPI_OK(MPI_Win_create(memory.data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    {
      Ring ring(win, memory.data(), bytes, static_cast<std::uint64_t>(k));
      Stream stream;
      for (int i = k % 3; i >= 0; --i) ring.epoch(stream);
      stream.synchronize();
    }
    MPI_OK(MPI_Win_free(&win));
    Buffer::set_now(memory.data(), bytes, static_cast<char>(k));
  }
  barrier();
  for (std::size_t k = 0; k < memories.size(); ++k)
    for (char c : contents<char>(memories[k]->data(), bytes))
      if (c != static_cast<char>(k + 1))
        fail(__FILE__, __LINE__, "something wrote into memory of a window that has ended");
  checked(static_cast<long>(memories.size()));
}

TEST_CASE("the program's receives match its own messages only") {
  int got[2] = {-1, -1};
  MPI_Request request;
  MPI_OK(MPI_Irecv(got, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
  barrier();
  {
    Window window(Memory::device, 100);
    Ring ring(window, window.base(), 100);
    Stream stream;
    for (int k = scaled(100); k > 0; --k) ring.epoch(stream);
    stream.synchronize();
    int early = 0;
    MPI_OK(MPI_Test(&request, &early, MPI_STATUS_IGNORE));
    CHECK_FALSE(early);
  }
  const int sent[2] = {rank(), 4711};
  MPI_OK(MPI_Send(sent, 2, MPI_INT, right_of(rank()), 5, MPI_COMM_WORLD));
  wait(request);
  CHECK(got[0] == left_of(rank()));
  CHECK(got[1] == 4711);
}
