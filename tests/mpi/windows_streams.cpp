// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Several windows, several streams, several communicators.
#include <dirent.h>

#include <memory>
#include <set>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

int count_entries(const char* directory, const std::string& with = "") {
  int count = 0;
  DIR* open = opendir(directory);
  REQUIRE(open != nullptr);
  while (const dirent* entry = readdir(open))
    if (std::string(entry->d_name).find(with) != std::string::npos) ++count;
  closedir(open);
  return count;
}

/// As many as fit into some seconds: with more ranks than cores MPI's own collectives are slow.
int repetitions(int wanted, double seconds, const std::function<void()>& once) {
  once();
  const double start = MPI_Wtime();
  once();
  int count = static_cast<int>(seconds / (MPI_Wtime() - start));
  count = std::max(10, std::min(wanted, count));
  MPI_Request request;
  MPI_OK(MPI_Ibcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD, &request));
  wait(request);
  return count;
}

}  // namespace

TEST_CASE("several windows in one stream") {
  Window small(Memory::unmapped, 100);
  Window large(Memory::device, 50000);
  Window middle(Memory::other, 3000);
  Ring rings[] = {{small, small.base(), 100, 1}, {large, large.base(), 50000, 2}, {middle, middle.base(), 3000, 3}};
  Stream stream;
  for (int k = scaled(60); k > 0; --k)
    for (Ring& ring : rings) ring.epoch(stream);
  stream.synchronize();
}

TEST_CASE("epochs of several windows are open at the same time") {
  Window one(Memory::device, 64);
  Window two(Memory::unmapped, 64);
  Ring outer(one, one.base(), 64, 1);
  Ring inner(two, two.base(), 64, 2);
  Stream stream;
  for (int k = scaled(50); k > 0; --k) outer.epoch(stream, [&] { inner.epoch(stream); });
  for (int k = scaled(50); k > 0; --k) outer.fused_epoch(stream, [&] { inner.fused_epoch(stream); });
  stream.synchronize();
}

TEST_CASE("several streams, each with its windows") {
  constexpr int count = 4;
  std::vector<std::unique_ptr<Window>> windows;
  std::vector<std::unique_ptr<Ring>> rings;
  for (int i = 0; i < count; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 200 : 40000;
    windows.push_back(std::make_unique<Window>(all_memories[i], bytes));
    rings.push_back(std::make_unique<Ring>(*windows.back(), windows.back()->base(), bytes, i));
  }
  Stream streams[count];
  for (int k = scaled(60); k > 0; --k)
    for (int i = 0; i < count; ++i) rings[i]->epoch(streams[i]);
  for (Stream& stream : streams) stream.synchronize();
}

TEST_CASE("many windows at the same time") {
  constexpr int count = 20;
  std::vector<std::unique_ptr<Window>> windows;
  std::vector<std::unique_ptr<Ring>> rings;
  for (int i = 0; i < count; ++i) {
    windows.push_back(std::make_unique<Window>(Memory::device, 100));
    rings.push_back(std::make_unique<Ring>(*windows.back(), windows.back()->base(), 100, i));
  }
  Stream stream;
  for (int k = 0; k < 5; ++k)
    for (auto& ring : rings) ring->epoch(stream);
  stream.synchronize();
}

// A stream that waits does not hold up another one.
TEST_CASE("a waiting stream does not block another stream") {
  NEEDS_RANKS(2);
  Window slow(Memory::device, 64);
  Window quick(Memory::device, 64);
  Ring slow_ring(slow, slow.base(), 64, 1);
  Ring quick_ring(quick, quick.base(), 64, 2);
  Stream waiting, running;
  // Rank 0 holds back its part of the slow ring until the quick ring is done.
  std::unique_ptr<Gate> gate;
  if (rank() == 0) gate = device().hold(waiting);
  slow_ring.epoch(waiting);
  for (int k = scaled(50); k > 0; --k) quick_ring.epoch(running);
  running.synchronize();
  if (gate) gate->open();
  waiting.synchronize();
}

namespace {

/// An epoch that rank 1 waits for in a stream, and to which rank 0 comes when a message has gone that needs rank 1 in
/// MPI.
class BehindMessage {
 public:
  BehindMessage(MPI_Win window, void* stream) {
    const int bytes = int(data_.size());
    if (rank() == 0) {
      const Group to(1);
      MPI_OK(MPI_Send(data_.data(), bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
    } else if (rank() == 1) {
      const Group from(0);
      MPI_OK(MPI_Irecv(data_.data(), bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request_));
      MPI_OK(MPIX_Win_post_stream(from, window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
    }
  }
  void end() { MPI_OK(MPI_Wait(&request_, MPI_STATUS_IGNORE)); }

 private:
  std::vector<char> data_ = std::vector<char>(std::size_t{4} << 20);
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

TEST_CASE("messages go on while the host waits for a stream") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "a GPU's own synchronization makes no progress for MPI");
  Window window(Memory::device, 64);
  Stream stream;
  BehindMessage epoch(window, stream);
  stream.synchronize();
  epoch.end();
  EXPECT(true, "it ends");
}

TEST_CASE("messages go on while MPI_Win_free waits for an epoch") {
  NEEDS_RANKS(2);
  Buffer memory(64);
  MPI_Win window;
  MPI_OK(MPI_Win_create(memory.data(), 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  Stream stream;
  BehindMessage epoch(window, stream);
  MPI_OK(MPI_Win_free(&window));
  epoch.end();
  EXPECT(window == MPI_WIN_NULL, "it ends");
}

TEST_CASE("messages go on while a host stream is destroyed") {
  NEEDS_RANKS(2);
  NEEDS(device().is_host(), "streams of GPUs are not of the library");
  Window window(Memory::device, 64);
  MPIX_Host_stream stream;
  MPI_OK(MPIX_Host_stream_create(&stream));
  BehindMessage epoch(window, stream);
  MPI_OK(MPIX_Host_stream_destroy(&stream));
  epoch.end();
  EXPECT(stream == nullptr, "it ends");
}

// The sides of one window are independent, and may use streams of their own.
TEST_CASE("access and exposure in different streams") {
  for (std::size_t bytes : {80, 30000}) {
    Window window(Memory::device, bytes);
    Buffer source(bytes);
    Group to(right_of(rank()));
    Group from(left_of(rank()));
    Stream access, exposure;
    for (int k = scaled(100); k > 0; --k) {
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      access.fill(source.data(), bytes, ring_data(rank(), k));
      MPI_OK(MPI_Put(source.data(), int(bytes), MPI_BYTE, right_of(rank()), 0, int(bytes), MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, access));
      MPI_OK(MPIX_Win_post_stream(from, window, exposure));
      MPI_OK(MPIX_Win_wait_stream(window, exposure));
      exposure.check(window.base(), bytes, ring_data(left_of(rank()), k), HERE("epoch " << k));
    }
    access.synchronize();
    exposure.synchronize();
  }
}

TEST_CASE("halo exchange with both neighbours, complete and wait in one") {
  constexpr int cells = 1000;
  Window window(Memory::device, 2 * cells * sizeof(double), sizeof(double));
  const auto* ghosts = window.as<double>();  // from the left, from the right
  Buffer edge(cells * sizeof(double));
  const int left = left_of(rank());
  const int right = right_of(rank());
  const std::set<int> unique{left, right};  // one and the same in a world of two, or oneself
  Group neighbours(std::vector<int>(unique.begin(), unique.end()));
  Stream stream;
  for (int k = scaled(300); k > 0; --k) {
    MPI_OK(MPIX_Win_post_stream(neighbours, window, stream));
    stream.fill(edge.data(), edge.size(), ring_data(rank(), k));
    MPI_OK(MPI_Win_start(neighbours, MPIX_MODE_STREAM, window));
    MPI_OK(MPI_Put(edge.data(), cells, MPI_DOUBLE, left, cells, cells, MPI_DOUBLE, window));
    MPI_OK(MPI_Put(edge.data(), cells, MPI_DOUBLE, right, 0, cells, MPI_DOUBLE, window));
    MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
    stream.check(ghosts, edge.size(), ring_data(left, k), HERE("from the left in step " << k));
    stream.check(ghosts + cells, edge.size(), ring_data(right, k), HERE("from the right in step " << k));
  }
  stream.synchronize();
}

TEST_CASE("a rank is its own neighbour") {
  for (Memory memory : all_memories) {
    Window window(memory, 40000);
    Buffer source(40000);
    Group self(rank());
    Stream stream;
    for (int k = scaled(40); k > 0; --k) {
      const int bytes = k % 2 == 0 ? 16 : 40000;
      MPI_OK(MPIX_Win_post_stream(self, window, stream));
      MPI_OK(MPI_Win_start(self, MPIX_MODE_STREAM, window));
      stream.fill(source.data(), source.size(), ring_data(rank(), k));
      MPI_OK(MPI_Put(source.data(), bytes, MPI_BYTE, rank(), 0, bytes, MPI_BYTE, window));
      MPI_OK(MPIX_Win_complete_stream(window, stream));
      MPI_OK(MPIX_Win_wait_stream(window, stream));
      stream.check(window.base(), static_cast<std::size_t>(bytes), ring_data(rank(), k), HERE("epoch " << k));
    }
    stream.synchronize();
  }
}

// In the window's communicator ranks are others than in MPI_COMM_WORLD: here in reverse order.
TEST_CASE("windows on other communicators") {
  // Open MPI 4.1.4 creates no windows on communicators of one rank.
  NEEDS_RANKS(2);
  const int parts = size() >= 4 ? 2 : 1;
  MPI_Comm part;
  MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank() % parts, -rank(), &part));
  int me = 0, ranks = 0;
  MPI_OK(MPI_Comm_rank(part, &me));
  MPI_OK(MPI_Comm_size(part, &ranks));
  {
    // In turns: Open MPI 4.1.4 gives the shared-memory windows of sibling communicators one file
    // name.
    std::unique_ptr<Window> made;
    for (int turn = 0; turn < parts; ++turn) {
      if (rank() % parts == turn) made = std::make_unique<Window>(Memory::device, 64 * sizeof(int), sizeof(int), part);
      MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    Window& window = *made;
    const int next = (me + 1) % ranks;
    const int previous = (me + ranks - 1) % ranks;
    // The group may come from the window's communicator, or from the world.
    const int world_previous = rank() + parts < size() ? rank() + parts : rank() % parts;
    Group to(next, part);
    Group from(world_previous);
    Buffer value(sizeof(int));
    Stream stream;
    for (int k = scaled(20); k > 0; --k) {
      MPI_OK(MPIX_Win_post_stream(from, window, stream));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      stream.fill(value.data(), sizeof(int), ring_data(me, k));
      MPI_OK(MPI_Put(value.data(), 1, MPI_INT, next, me, 1, MPI_INT, window));
      MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
      stream.check(window.as<int>() + previous, sizeof(int), ring_data(previous, k), HERE("step " << k));
    }
    stream.synchronize();
  }
  MPI_OK(MPI_Comm_free(&part));
}

// Neither descriptors, nor mappings, nor names in /dev/shm may remain of a window.
TEST_CASE("windows come and go") {
  int turn = 0;
  const auto once = [&] {
    Window window(all_memories[turn++ % 4], 30000);
    Ring ring(window, window.base(), 30000);
    Stream stream;
    ring.epoch(stream);
    stream.synchronize();
  };
  for (int i = 0; i < 4; ++i) once();  // what is set up at first use stays
  const int count = repetitions(300, 3, once);
  const int files = count_entries("/proc/self/fd");
  const int names = count_entries("/dev/shm", "mpix");
  const int mappings = count_entries("/proc/self/map_files");
  for (int i = 0; i < count; ++i) once();
  INFO(count << " windows");
  CHECK(count_entries("/proc/self/fd") <= files + 4);
  CHECK(count_entries("/dev/shm", "mpix") == names);
  CHECK(count_entries("/proc/self/map_files") <= mappings + 40);
  alive("streams");
  const int threads = count_entries("/proc/self/task");
  for (int i = 0; i < 300; ++i) Stream stream;
  CHECK(count_entries("/proc/self/task") <= threads + 1);
}

// A window may be freed without a synchronization: it waits for its own work.
TEST_CASE("freeing a window with work under way") {
  for (int i = 0; i < 5; ++i) {
    auto window = std::make_unique<Window>(Memory::device, 1000);
    Group to(right_of(rank()));
    Group from(left_of(rank()));
    Buffer source(1000);
    Stream stream;
    if (rank() == i % size()) stream.delay(5000);
    for (int k = scaled(20); k > 0; --k) {
      MPI_OK(MPIX_Win_post_stream(from, *window, stream));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, *window));
      stream.fill(source.data(), 1000, ring_data(rank(), k));
      MPI_OK(MPI_Put(source.data(), 1000, MPI_BYTE, right_of(rank()), 0, 1000, MPI_BYTE, *window));
      MPI_OK(MPIX_Win_complete_wait_stream(*window, stream));
      stream.check(window->base(), 1000, ring_data(left_of(rank()), k), HERE("window " << i << ", epoch " << k));
    }
    // The checks of the window's contents are the program's: they must run while the window is there.
    stream.synchronize();
    MPI_OK(MPIX_Win_post_stream(from, *window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, *window));
    MPI_OK(MPI_Put(source.data(), 1000, MPI_BYTE, right_of(rank()), 0, 1000, MPI_BYTE, *window));
    if (rank() == i % size()) stream.delay(3000);
    MPI_OK(MPIX_Win_complete_wait_stream(*window, stream));
    window.reset();
    stream.synchronize();
  }
}

// More different epochs than the library remembers, each too large for a kernel's arguments, before the first of
// them runs: kernels read their tables when they run.
TEST_CASE("many different epochs are enqueued before the first one runs") {
  constexpr std::size_t pieces = 40, piece = 64;
  Window window(Memory::device, pieces * piece);
  DeviceMemory source(pieces * piece);
  Stream stream;
  const auto gate = device().hold(stream);
  device().fill(stream, source.base(), pieces * piece, ring_data(rank(), 1));
  const Group to(right_of(rank())), from(left_of(rank()));
  for (std::size_t k = 0; k < 20; ++k) {
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    for (std::size_t i = 0; i < pieces; ++i)
      MPI_OK(MPI_Put(source.base() + i * piece, piece, MPI_BYTE, right_of(rank()),
                     static_cast<MPI_Aint>((i + k) % pieces * piece), piece, MPI_BYTE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    for (const std::size_t i : {std::size_t{0}, pieces / 2})
      device().check(stream, window.base() + (i + k) % pieces * piece, piece, ring_data(left_of(rank()), 1),
                     HERE("piece " << i << " of epoch " << k), i * piece);
  }
  gate->open();
  stream.synchronize();
}
