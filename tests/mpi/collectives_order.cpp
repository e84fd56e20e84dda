// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams, one behind the other without synchronization: also in graphs, and with ordinary collectives
// and stream epochs between.
#include <atomic>
#include <memory>

#include "support/catch.h"
#include "support/collective_calls.h"

using namespace test;

namespace {

constexpr std::uint64_t seed = 42;

}  // namespace

TEST_CASE("a thousand calls of all kinds without synchronization") {
  const Comm comm(Comm::duplicate());
  Sequence sequence(comm, seed, 60);
  Stream stream;
  for (int i = scaled(1000); i > 0; --i) sequence.enqueue(stream);
  stream.synchronize();
  sequence.check();
}

namespace {

/// What each call of a chain sends, in the same buffers as the one before: by its number.
Pattern data_of(int number, int from, int to = 0) {
  return Pattern(
      key({static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), 99}));
}

}  // namespace

TEST_CASE("calls that share their buffers, filled and checked in stream order") {
  const Comm comm(Comm::duplicate());
  const std::size_t most = 3000, n = static_cast<std::size_t>(size());
  const Buffer source(n * most), target(n * most);
  Random random(seed);
  Stream stream;
  for (int number = scaled(1000); number > 0; --number) {
    const std::size_t bytes = random.chance(0.7) ? random.below(100) : random.below(most + 1);
    const int count = static_cast<int>(bytes), root = static_cast<int>(random.below(n));
    const std::string what = "call " + std::to_string(number) + " of " + std::to_string(count) + " bytes";
    switch (random.below(4)) {
      case 0:
        if (rank() == root) stream.fill(source.data(), bytes, data_of(number, root));
        MPI_OK(MPIX_Bcast_stream(source.data(), count, MPI_BYTE, root, comm, stream));
        stream.check(source.data(), bytes, data_of(number, root), HERE(what << ", bcast"));
        break;
      case 1:
        stream.fill(source.data(), bytes, data_of(number, rank()));
        MPI_OK(MPIX_Allgather_stream(source.data(), count, MPI_BYTE, target.data(), count, MPI_BYTE, comm, stream));
        for (std::size_t r = 0; r < n; ++r)
          stream.check(target.data() + r * bytes, bytes, data_of(number, static_cast<int>(r)),
                       HERE(what << ", allgather from " << r));
        break;
      case 2:
        for (std::size_t r = 0; r < n; ++r)
          stream.fill(source.data() + r * bytes, bytes, data_of(number, rank(), static_cast<int>(r)));
        MPI_OK(MPIX_Alltoall_stream(source.data(), count, MPI_BYTE, target.data(), count, MPI_BYTE, comm, stream));
        for (std::size_t r = 0; r < n; ++r)
          stream.check(target.data() + r * bytes, bytes, data_of(number, static_cast<int>(r), rank()),
                       HERE(what << ", alltoall from " << r));
        break;
      default:  // all but the root contribute zeros
        if (rank() == root) {
          stream.fill(source.data(), bytes, data_of(number, root));
        } else {
          stream.set(source.data(), bytes, 0);
        }
        MPI_OK(MPIX_Allreduce_stream(source.data(), target.data(), count, MPI_BYTE, MPI_BXOR, comm, stream));
        stream.check(target.data(), bytes, data_of(number, root), HERE(what << ", allreduce"));
        break;
    }
  }
  stream.synchronize();
}

TEST_CASE("ordinary collectives and stream epochs between") {
  const Comm comm(Comm::duplicate());
  Sequence sequence(comm, seed + 9, 500);
  Window window(Memory::device, 2000);
  Ring ring(window, window.base(), 2000);
  Stream stream;
  const int turns = scaled(50);
  for (int i = 1; i <= turns; ++i) {
    sequence.enqueue(stream);
    if (i % 2) {
      ring.epoch(stream, [&] { sequence.enqueue(stream); });
    } else {
      ring.fused_epoch(stream);
    }
    int sum = 0;
    MPI_OK(MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, comm));
    EXPECT(sum == i * size(), "MPI_Allreduce between");
    sequence.enqueue(stream);
    if (i % 10 == 0) MPI_OK(MPI_Barrier(comm));
  }
  stream.synchronize();
  sequence.check();
}

TEST_CASE("calls return while the streams stand") {
  const Comm comm(Comm::duplicate());
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  Stream stream;
  Sequence sequence(comm, seed + 13, 20000);
  const auto gate = device().hold(stream);
  for (int i = 0; i < 50; ++i) sequence.enqueue(stream);
  barrier();  // on all ranks
  gate->open();
  stream.synchronize();
  sequence.check();
}

TEST_CASE("no stream passes a barrier before all have come") {
  const Comm comm(Comm::duplicate());
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  for (int late = 0; late < size(); ++late) {
    const Buffer passed(sizeof(std::uint64_t));
    std::atomic<std::uint64_t> passed_here{0};  // on the host, where both look at once
    Stream stream;
    const bool is_host = device().is_host();
    const auto look = [&] { return is_host ? passed_here.load() : contents<std::uint64_t>(passed.data(), 1)[0]; };
    std::unique_ptr<Gate> gate;
    MPI_OK(MPIX_Barrier_stream(comm, stream));
    if (rank() == late) gate = device().hold(stream);
    MPI_OK(MPIX_Barrier_stream(comm, stream));
    if (is_host) {
      launch_on_host(stream, [&] { ++passed_here; });
    } else {
      device().count(stream, passed.as<std::uint64_t>());
    }
    barrier();
    usleep(30000);
    CHECK(look() == 0);
    barrier();
    if (gate) gate->open();
    stream.synchronize();
    CHECK(look() == 1);
  }
}

TEST_CASE("captured calls, launched again and again") {
  NEEDS(!device().is_host(), "host streams are not captured");
  const Comm comm(Comm::duplicate());
  const int launches = 20, root = size() - 1;
  const std::size_t bytes = 5000, n = static_cast<std::size_t>(size());
  const int count = static_cast<int>(bytes);
  const Buffer number(8), source(n * bytes), gathered(n * bytes), turned(n * bytes), told(bytes);
  const Values<std::uint64_t> sum{static_cast<std::uint64_t>(rank() + 1)};
  const auto data = [&](int from, int to) { return data_of(0, from, to).counted_by(number.as<std::uint64_t>()); };
  Stream stream;
  const auto enqueue_all = [&] {
    device().count(stream, number.as<std::uint64_t>());
    for (std::size_t r = 0; r < n; ++r)
      stream.fill(source.data() + r * bytes, bytes, data(rank(), static_cast<int>(r)));
    MPI_OK(MPIX_Alltoall_stream(source.data(), count, MPI_BYTE, turned.data(), count, MPI_BYTE, comm, stream));
    MPI_OK(MPIX_Allgather_stream(source.data(), count, MPI_BYTE, gathered.data(), count, MPI_BYTE, comm, stream));
    if (rank() == root) stream.fill(told.data(), bytes, data(root, 1000));
    MPI_OK(MPIX_Bcast_stream(told.data(), count, MPI_BYTE, root, comm, stream));
    MPI_OK(MPIX_Allreduce_stream(MPI_IN_PLACE, sum.data(), 1, MPI_UINT64_T, MPI_SUM, comm, stream));
    MPI_OK(MPIX_Barrier_stream(comm, stream));
    for (std::size_t r = 0; r < n; ++r) {
      const int from = static_cast<int>(r);
      stream.check(turned.data() + r * bytes, bytes, data(from, rank()), HERE("captured alltoall"));
      stream.check(gathered.data() + r * bytes, bytes, data(from, 0), HERE("captured allgather"));
    }
    stream.check(told.data(), bytes, data(root, 1000), HERE("captured bcast"));
  };
  const std::uint64_t before = device().captured_checks();
  const auto graph = device().capture(stream, enqueue_all);
  device().expect_replays(device().captured_checks() - before, static_cast<std::uint64_t>(launches));
  Sequence between(comm, seed + 14, 200);
  for (int i = 0; i < launches; ++i) {
    graph->launch();
    if (i % 3 == 0) between.enqueue(stream);
  }
  stream.synchronize();
  between.check();
  std::uint64_t wanted = n * (n + 1) / 2;
  for (int i = 1; i < launches; ++i) wanted *= n;
  CHECK(contents<std::uint64_t>(sum.data(), 1)[0] == wanted);
}
