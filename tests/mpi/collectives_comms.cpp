// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Collectives on streams, on communicators of all sorts: several at a time, of some ranks, freed early, again and
// again.
#include <mpix.h>
#include <mpix_device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/collective_calls.h"
#include "support/usage.h"

using namespace test;

namespace {

constexpr std::uint64_t seed = 42;

}  // namespace

TEST_CASE("two communicators on two streams") {
  const Comm one(Comm::duplicate()), other(Comm::duplicate());
  Sequence first(one, seed + 1, 500), second(other, seed + 2, 500);
  Stream a, b;
  for (int i = scaled(200); i > 0; --i) {
    first.enqueue(a);
    if (rank() % 2 == 0 && i % 7 == 0) a.delay(100);
    second.enqueue(b);
  }
  a.synchronize();
  b.synchronize();
  first.check();
  second.check();
}

TEST_CASE("two communicators take turns on one stream") {
  const Comm one(Comm::duplicate()), other(Comm::duplicate());
  Sequence first(one, seed + 1, 500), second(other, seed + 2, 500);
  Stream stream;
  for (int i = scaled(200); i > 0; --i) {
    first.enqueue(stream);
    second.enqueue(stream);
  }
  stream.synchronize();
  first.check();
  second.check();
}

TEST_CASE("one communicator on several streams, one after the other") {
  const Comm comm(Comm::duplicate());
  Sequence sequence(comm, seed + 3, 500);
  for (int turn = 0; turn < 6; ++turn) {
    Stream stream;
    for (int i = 0; i < 20; ++i) sequence.enqueue(stream);
    stream.synchronize();
  }
  sequence.check();
}

TEST_CASE("communicators of some ranks, and in another order") {
  const Comm reversed(Comm::split(0, -rank())), halves(Comm::split(rank() % 2, rank()));
  Sequence of_all(reversed, seed + 4, 300), of_some(halves, seed + 5, 300);
  Stream stream;
  for (int i = scaled(100); i > 0; --i) {
    of_all.enqueue(stream);
    for (int k = rank() % 2; k < 2; ++k) of_some.enqueue(stream);  // the halves differ
  }
  stream.synchronize();
  of_all.check();
  of_some.check();
}

TEST_CASE("a communicator of one rank") {
  const Comm alone(Comm::duplicate(MPI_COMM_SELF));
  Sequence sequence(alone, seed + 6 + static_cast<std::uint64_t>(rank()), 5000);  // each rank its own
  Stream stream;
  for (int i = 0; i < 200; ++i) sequence.enqueue(stream);
  stream.synchronize();
  sequence.check();
  Call call;
  call.salt = 1;
  for (What what : all_kinds) {
    call.what = what;
    try_call(call, stream, "MPI_COMM_SELF", MPI_COMM_SELF);
  }
}

TEST_CASE("MPI_Comm_prepare_stream, and communicators of which some are never used") {
  for (int turn = 0; turn < 3; ++turn) {
    const Comm prepared(Comm::duplicate()), unused(Comm::duplicate());
    MPI_OK(MPIX_Comm_prepare_stream(prepared, MPI_INFO_NULL));
    if (turn == 1) MPI_OK(MPIX_Comm_prepare_stream(prepared, MPI_INFO_NULL));
    if (turn == 2) MPI_OK(MPIX_Comm_prepare_stream(unused, MPI_INFO_NULL));
    // of what is used only a copy, that has nothing yet
    const Comm copy(Comm::duplicate(prepared));
    Sequence sequence(prepared, seed + 7, 100), of_copy(copy, seed + 8, 100);
    Stream stream;
    for (int i = 0; i < 10; ++i) {
      sequence.enqueue(stream);
      of_copy.enqueue(stream);
    }
    stream.synchronize();
    sequence.check();
    of_copy.check();
  }
}

TEST_CASE("a communicator that is freed while its calls are enqueued") {
  for (int turn = scaled(10); turn > 0; --turn) {
    Stream stream;
    std::vector<std::unique_ptr<Trial>> trials;
    Random random(seed + static_cast<std::uint64_t>(turn));
    MPI_Comm comm = Comm::duplicate();
    MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
    if (turn % size() == rank()) stream.delay(20000);
    for (int i = 0; i < 20; ++i) {
      trials.push_back(std::make_unique<Trial>(random_call(random, size(), 1000), rank(), size()));
      MPI_OK(trials.back()->make(comm, stream));
    }
    MPI_OK(MPI_Comm_free(&comm));
    EXPECT(comm == MPI_COMM_NULL, "freed");
    stream.synchronize();
    for (const auto& trial : trials) trial->check();
  }
}

// One that the last call of the communicator waits for, in the other rank.
TEST_CASE("messages go on while MPI_Comm_free waits for calls") {
  NEEDS_RANKS(2);
  MPI_Comm comm;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  std::vector<char> data(std::size_t{4} << 20);
  MPI_Request request = MPI_REQUEST_NULL;
  Stream stream;
  if (rank() == 0) MPI_OK(MPI_Send(data.data(), int(data.size()), MPI_BYTE, 1, 0, MPI_COMM_WORLD));
  if (rank() == 1) MPI_OK(MPI_Irecv(data.data(), int(data.size()), MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request));
  MPI_OK(MPIX_Barrier_stream(comm, stream));
  MPI_OK(MPI_Comm_free(&comm));
  MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  EXPECT(comm == MPI_COMM_NULL, "it ends");
}

// MPI keeps a communicator for it, and its attributes; one rank frees its own late.
TEST_CASE("a communicator that is freed before a persistent request of it") {
  NEEDS_RANKS(2);
  Comm comm(Comm::duplicate());
  Sequence sequence(comm, seed + 20, 300);
  Stream stream;
  for (int i = 0; i < 5; ++i) sequence.enqueue(stream);
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank() < 2) MPI_OK(MPI_Send_init(&value, 1, MPI_INT, 1 - rank(), 0, comm, &request));
  MPI_OK(MPI_Comm_free(comm.handle()));
  EXPECT(comm == MPI_COMM_NULL, "freed");
  stream.synchronize();
  sequence.check();
  if (rank() == 0) {
    MPI_OK(MPI_Request_free(&request));
    MPI_OK(MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
  } else if (rank() == 1) {
    MPI_OK(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Request_free(&request));
  }
}

TEST_CASE("a communicator that is disconnected while its calls are enqueued") {
  Comm comm(Comm::duplicate());
  Sequence sequence(comm, seed + 21, 300);
  Stream stream;
  if (rank() == 0) stream.delay(20000);
  for (int i = 0; i < 5; ++i) sequence.enqueue(stream);
  MPI_OK(MPI_Comm_disconnect(comm.handle()));
  EXPECT(comm == MPI_COMM_NULL, "disconnected");
  stream.synchronize();
  sequence.check();
}

namespace {

int copies = 0;

extern "C" int count_copy(MPI_Comm, int, void*, void* value, void* copied, int* is_copied) {
  ++copies;
  *static_cast<void**>(copied) = value;
  *is_copied = 1;
  return MPI_SUCCESS;
}

}  // namespace

TEST_CASE("what a program keeps with its communicator is copied when it asks for that") {
  int key = MPI_KEYVAL_INVALID;
  MPI_OK(MPI_Comm_create_keyval(count_copy, MPI_COMM_NULL_DELETE_FN, &key, nullptr));
  const Comm comm(Comm::duplicate());
  MPI_OK(MPI_Comm_set_attr(comm, key, &copies));
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));  // there is no domain across nodes
  copies = 0;
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  MPIX_Dev domain = MPIX_DEV_NULL;
  if (MPIX_Dev_create(comm, 1, MPI_INFO_NULL, &domain) == MPI_SUCCESS) MPI_OK(MPIX_Dev_free(&domain));
  MPIX_Halo halo = MPIX_HALO_NULL;
  MPI_OK(MPIX_Halo_create(comm, 0, nullptr, MPI_INFO_NULL, &halo));
  MPI_OK(MPIX_Halo_free(&halo));
  CHECK(copies == 0);
  (void)Comm(Comm::duplicate(comm));
  CHECK(copies == 1);
  MPI_OK(MPI_Comm_delete_attr(comm, key));
  MPI_OK(MPI_Comm_free_keyval(&key));
}

TEST_CASE("communicators come and go") {
  const int lifetimes = scaled(static_cast<int>(parameter("TEST_LIFETIMES", 200)));
  Usage early{};
  Stream stream;
  for (int turn = 0; turn < lifetimes; ++turn) {
    const Comm comm(turn % 3 == 2 ? Comm::split(rank() % 2, -rank()) : Comm::duplicate());
    Sequence sequence(comm, seed + static_cast<std::uint64_t>(turn), 300);
    for (int i = 0; i < 3; ++i) sequence.enqueue(stream);
    stream.synchronize();
    sequence.check();
    if (turn % 50 == 0) alive("communicator " + std::to_string(turn));
    if (turn != lifetimes / 5) continue;
    barrier();
    early = Usage::now();
    barrier();
  }
  barrier();
  const Usage late = Usage::now();
  const std::string both = early.text() + "; then " + late.text();
  if (rank() == 0) std::printf("%d communicators: %s\n", lifetimes, both.c_str());
  INFO(both);
  // The runtime of a GPU has some of its own, and takes more at times: not for each communicator.
  const long spare = device().is_host() ? 0 : lifetimes / 10 + 3;
  CHECK(static_cast<long>(late.files) <= static_cast<long>(early.files) + spare);
  CHECK(static_cast<long>(late.threads) <= static_cast<long>(early.threads) + spare);
  CHECK(late.mappings <= early.mappings + 8 + 2 * spare);
  CHECK((sanitized || late.heap - early.heap < (device().is_host() ? 512 : 2048) * 1024));
  // one communicator has 48 MiB; ranks may share the GPU
  CHECK(early.gpu_free - late.gpu_free <= size() * (64L << 20));
}

TEST_CASE("threads have a communicator and a stream each") {
  constexpr int threads = 3;
  const int calls = scaled(100);
  struct Work {
    explicit Work(int i) : sequence(comm, seed + 10 + static_cast<std::uint64_t>(i), 300) {}
    const Comm comm{Comm::duplicate()};
    Sequence sequence;
    Stream stream;
  };
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < threads; ++i) {
    works.push_back(std::make_unique<Work>(i));
    works.back()->sequence.prepare(calls);
    MPI_OK(MPIX_Comm_prepare_stream(works.back()->comm, MPI_INFO_NULL));
  }
  in_threads(threads, [&](int i) {
    Work& work = *works[static_cast<std::size_t>(i)];
    for (int k = calls; k > 0; --k) work.sequence.enqueue(work.stream);
    work.stream.synchronize();
  });
  for (const auto& work : works) work->sequence.check();
}

TEST_CASE("what cannot go the way that is forced goes as where none is") {
  NEEDS(device().is_host() && size() > 1 && !spans_nodes() && !std::getenv("MPIX_COLL"), "ranks of one node, on hosts");
  constexpr int words = 1 << 17;
  const Buffer send(8 * words), recv(8 * words * static_cast<std::size_t>(size()));
  Stream stream;
  for (const char* const way : {"gsb", "packs"}) {
    Info info;
    info.set("mpix_coll", way);
    const Comm comm(Comm::duplicate());
    MPI_OK(MPIX_Comm_prepare_stream(comm, info));
    if (way == std::string("gsb"))
      MPI_OK(MPIX_Allgather_stream(send.data(), words, MPI_DOUBLE, recv.data(), words, MPI_DOUBLE, comm, stream));
    else
      MPI_OK(MPIX_Allreduce_stream(send.data(), recv.data(), words, MPI_INT64_T, MPI_BXOR, comm, stream));
    stream.synchronize();
    MPIX_Comm_stats stats{};
    MPI_OK(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
    INFO(way);
    CHECK(stats.calls_direct == 1);
  }
}

TEST_CASE("calls are counted") {
  const Comm comm(Comm::duplicate());
  MPIX_Comm_stats stats{};
  MPI_OK(MPIX_Comm_prepare_stream(comm, MPI_INFO_NULL));
  MPI_OK(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
  CHECK(stats.calls == 0);
  const Buffer send(800), recv(800);
  Stream stream;
  for (int i = 0; i < 10; ++i)
    MPI_OK(MPIX_Allreduce_stream(send.data(), recv.data(), 100, MPI_DOUBLE, MPI_SUM, comm, stream));
  // a call that is refused is none
  MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  CHECK(MPIX_Allreduce_stream(send.data(), recv.data(), -1, MPI_DOUBLE, MPI_SUM, comm, stream) != MPI_SUCCESS);
  stream.synchronize();
  MPI_OK(MPIX_Comm_get_stats(comm, &stats, sizeof stats));
  CHECK(stats.calls == 10);
  CHECK(stats.bytes == 8000);
  if (device().is_host()) CHECK(stats.blocks == 1);
  const char* const setting = std::getenv("MPIX_COLL");
  const std::string way = setting ? setting : "auto";
  if (size() > 1) {
    CHECK(stats.calls_lines + stats.calls_packs + stats.calls_direct + stats.calls_trees + stats.calls_turns +
              stats.calls_staged + stats.calls_copies + stats.calls_nodes ==
          10);
    CHECK(stats.calls_nodes == (spans_nodes() ? 10 : 0));
    CHECK(stats.memory_bytes > 0);
    if (way == "lines") CHECK(stats.calls_direct == 0);
    if (way == "direct") CHECK(stats.calls_lines == 0);
  }
  unsigned long long begin[2] = {77, 77};  // of a program that knows fewer counters
  MPI_OK(MPIX_Comm_get_stats(comm, reinterpret_cast<MPIX_Comm_stats*>(begin), sizeof begin[0]));
  CHECK(begin[0] == 10);
  CHECK(begin[1] == 77);
}
