// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// What libmpix keeps for a communicator: windows share it, and it ends with the last of them and the communicator,
// whichever comes later. Its exchanges are counted, as a program's functions stand in front of a library's.
#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <vector>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

std::atomic<int> exchanges{0}, largest{0}, others{0};

/// The library's function, behind one of these here.
template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// A window and an epoch around the ring.
void run_epoch(Window& window, std::uint64_t salt) {
  Ring ring(window, window.base(), window.bytes(), salt);
  Stream stream;
  ring.epoch(stream);
  ring.fused_epoch(stream);
  stream.synchronize();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int PMPI_Allgather(const void* mine, int count, MPI_Datatype type,
                                                                     void* all, int all_count, MPI_Datatype all_type,
                                                                     MPI_Comm comm) {
  if (type == MPI_BYTE) {
    ++exchanges;
    int members = 0, before = largest;
    PMPI_Comm_size(comm, &members);
    if (members == size() && count > before) largest = count;
  }
  return next(PMPI_Allgather, "PMPI_Allgather")(mine, count, type, all, all_count, all_type, comm);
}

// What else would make ranks wait for each other.

extern "C" __attribute__((visibility("default"))) int PMPI_Allreduce(const void* mine, void* all, int count,
                                                                     MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++others;
  return next(PMPI_Allreduce, "PMPI_Allreduce")(mine, all, count, type, op, comm);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Bcast(void* data, int count, MPI_Datatype type, int root,
                                                                 MPI_Comm comm) {
  ++others;
  return next(PMPI_Bcast, "PMPI_Bcast")(data, count, type, root, comm);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Barrier(MPI_Comm comm) {
  ++others;
  return next(PMPI_Barrier, "PMPI_Barrier")(comm);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Comm_split(MPI_Comm comm, int colour, int key,
                                                                      MPI_Comm* made) {
  ++others;
  return next(PMPI_Comm_split, "PMPI_Comm_split")(comm, colour, key, made);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  ++others;
  return next(PMPI_Comm_dup, "PMPI_Comm_dup")(comm, made);
}

TEST_CASE("a further window of a communicator takes two exchanges, of which that of all ranks is small") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  {
    exchanges = 0;
    Window first(Memory::device, 4096, 1, comm);
    CHECK(exchanges > 2);
    const bool several_nodes = exchanges > 4;
    exchanges = largest = 0;
    Window second(Memory::device, 4096, 1, comm);
    CHECK(exchanges == 2);
    if (several_nodes) CHECK(largest == 64);
    run_epoch(first, 1);
    run_epoch(second, 2);
  }
  MPI_OK(MPI_Comm_free(&comm));
}

TEST_CASE("a further window of a plain program takes two exchanges at most, and no other collective call of ours") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  std::vector<char> memory(4096);
  constexpr int windows = 5;
  bool several_nodes = false;
  MPI_Win all[windows];
  for (int i = 0; i < windows; ++i) {
    exchanges = others = 0;
    void* base = nullptr;
    if (i % 2 == 0)
      MPI_OK(MPI_Win_create(memory.data(), 4096, 1, MPI_INFO_NULL, comm, &all[i]));
    else
      MPI_OK(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, comm, &base, &all[i]));
    CAPTURE(i);
    if (i == 0) several_nodes = exchanges > 4;
    if (i == 0) continue;  // it finds out who is where
    const bool is_foreseen = i >= 2 && !several_nodes && device().is_host();
    CHECK(exchanges <= (is_foreseen ? 1 : 2));
    // Where there is a GPU, Open MPI, and no GPU in its hands, the ranks ask each other whether a window hides from it.
    CHECK(others <= (device().is_host() ? 0 : 1));
  }
  for (MPI_Win& win : all) MPI_OK(MPI_Win_free(&win));
  MPI_OK(MPI_Comm_free(&comm));
}

TEST_CASE("windows work when their communicator has gone, and end after it") {
  for (int round = 0; round < 3; ++round) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    auto one = std::make_unique<Window>(Memory::device, 256, 1, comm);
    auto other = std::make_unique<Window>(Memory::unmapped, 30000, 1, comm);
    run_epoch(*one, 3);
    MPI_OK(MPI_Comm_free(&comm));
    run_epoch(*one, 4);
    one = nullptr;
    run_epoch(*other, 5);
  }
}

TEST_CASE("a duplicate of a communicator has a team of its own") {
  MPI_Comm comm = MPI_COMM_NULL, again = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  auto first = std::make_unique<Window>(Memory::device, 4096, 1, comm);
  MPI_OK(MPI_Comm_dup(comm, &again));
  exchanges = 0;
  Window second(Memory::device, 4096, 1, again);
  CHECK(exchanges > 2);
  first = nullptr;
  MPI_OK(MPI_Comm_free(&comm));
  run_epoch(second, 6);
  MPI_OK(MPI_Comm_free(&again));
}

TEST_CASE("ranks in another order, and some of them, have teams of their own") {
  MPI_Comm backwards = MPI_COMM_NULL, half = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, size() - rank(), &backwards));
  const int halves = size() < 4 ? 1 : 2;  // Open MPI 4 makes no window of one rank
  MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank() % halves, rank(), &half));
  {
    const Window all(Memory::device, 4096, 1, backwards);
    Window world(Memory::device, 4096);
    std::unique_ptr<Window> of_half;
    for (int turn = 0; turn < halves; ++turn) {  // Open MPI 4 has one name for the files of both
      if (rank() % halves == turn) of_half = std::make_unique<Window>(Memory::device, 4096, 1, half);
      MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    Window& some = *of_half;
    run_epoch(world, 7);
    Stream stream;
    int me = 0, count = 0;
    MPI_OK(MPI_Comm_rank(half, &me));
    MPI_OK(MPI_Comm_size(half, &count));
    MPI_Group group = MPI_GROUP_NULL;
    MPI_OK(MPI_Win_get_group(some, &group));
    const int value = 100 + rank();
    MPI_OK(MPIX_Win_post_stream(group, some, stream));
    MPI_OK(MPI_Win_start(group, MPIX_MODE_STREAM, some));
    for (int to = 0; to < count; ++to) MPI_OK(MPI_Put(&value, 4, MPI_BYTE, to, 4 * me, 4, MPI_BYTE, some));
    MPI_OK(MPIX_Win_complete_stream(some, stream));
    MPI_OK(MPIX_Win_wait_stream(some, stream));
    stream.synchronize();
    for (int from = 0; from < count; ++from) CHECK(some.as<int>()[from] == 100 + halves * from + rank() % halves);
    MPI_Group_free(&group);
  }
  MPI_OK(MPI_Comm_free(&backwards));
  MPI_OK(MPI_Comm_free(&half));
}

TEST_CASE("a communicator with a team may be left to MPI_Finalize") {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  Window window(Memory::device, 256, 1, comm);
  run_epoch(window, 8);
}
