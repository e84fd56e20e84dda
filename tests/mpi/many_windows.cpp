// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Many windows, of a program that is linked with MPI alone: how many descriptors, mappings and bytes of address space
// they take. With the argument "streams", under LD_PRELOAD, some of them have stream epochs. tests/mpi/many_windows.sh
// compares.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "mpix.h"

namespace {

constexpr int windows = 600, with_streams = 50;
constexpr std::size_t bytes = 4096;

#define HOLDS(...) check((__VA_ARGS__), #__VA_ARGS__)
void check(bool holds, const char* text) {
  if (holds) return;
  std::fprintf(stderr, "many_windows: not so: %s\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// What the process has, and what that became.
struct Usage {
  long descriptors = 0, mappings = 0, kilobytes = 0;

  static Usage now() {
    Usage usage;
    for (int file = 0; file < 1024; ++file)
      if (fcntl(file, F_GETFD) != -1) ++usage.descriptors;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++usage.mappings;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.rfind("VmSize:", 0) == 0) usage.kilobytes = std::atol(line.c_str() + 7);
    return usage;
  }

  /// The most that any rank has more than `before`.
  void print_since(const char* when, const Usage& before) const {
    long mine[] = {descriptors - before.descriptors, mappings - before.mappings, kilobytes - before.kilobytes};
    long most[3] = {};
    HOLDS(MPI_Reduce(mine, most, 3, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::printf("%s %ld %ld %ld\n", when, most[0], most[1], most[2]);
  }
};

template <class Function>
Function found(const char* name) {
  void* const address = dlsym(RTLD_DEFAULT, name);
  HOLDS(address != nullptr);
  Function function;
  std::memcpy(&function, &address, sizeof function);
  return function;
}
#define FOUND(name) found<decltype(&name)>(#name)

/// Each rank puts to the next, and so that some puts go by mailbox and others direct or staged.
void stream_epochs(std::vector<MPI_Win>& all, std::vector<std::vector<int>>& memory) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Group world, to, from;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &next, &to);
  MPI_Group_incl(world, 1, &previous, &from);
  MPIX_Host_stream stream;
  HOLDS(FOUND(MPIX_Host_stream_create)(&stream) == MPI_SUCCESS);
  for (int i = 0; i < with_streams; ++i) {
    MPI_Win win = all[static_cast<std::size_t>(i)];
    std::vector<int>& mine = memory[static_cast<std::size_t>(i)];
    const int count = i % 2 ? 4 : 500;
    const std::vector<int> values(static_cast<std::size_t>(count), 1000 * i + rank);
    HOLDS(FOUND(MPIX_Win_post_stream)(from, win, stream) == MPI_SUCCESS);
    HOLDS(MPI_Win_start(to, MPIX_MODE_STREAM, win) == MPI_SUCCESS);
    HOLDS(MPI_Put(values.data(), count, MPI_INT, next, 0, count, MPI_INT, win) == MPI_SUCCESS);
    HOLDS(FOUND(MPIX_Win_complete_stream)(win, stream) == MPI_SUCCESS);
    HOLDS(FOUND(MPIX_Win_wait_stream)(win, stream) == MPI_SUCCESS);
    HOLDS(FOUND(MPIX_Host_stream_synchronize)(stream) == MPI_SUCCESS);
    HOLDS(mine[static_cast<std::size_t>(count) - 1] == 1000 * i + previous);
  }
  HOLDS(FOUND(MPIX_Host_stream_destroy)(&stream) == MPI_SUCCESS);
  MPI_Group_free(&world);
  MPI_Group_free(&to);
  MPI_Group_free(&from);
}

}  // namespace

int main(int argc, char** argv) {
  HOLDS(MPI_Init(&argc, &argv) == MPI_SUCCESS);
  std::vector<MPI_Win> all(windows);
  std::vector<std::vector<int>> memory(windows, std::vector<int>(bytes / sizeof(int)));
  MPI_Barrier(MPI_COMM_WORLD);
  const Usage before = Usage::now();
  for (std::size_t i = 0; i < all.size(); ++i)
    HOLDS(MPI_Win_create(memory[i].data(), bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &all[i]) == MPI_SUCCESS);
  Usage::now().print_since("windows", before);
  const int file = open("/dev/null", O_RDONLY);
  HOLDS(file >= 0);
  close(file);

  // They work as ever.
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (MPI_Win win : {all.front(), all.back()}) {
    HOLDS(MPI_Win_fence(0, win) == MPI_SUCCESS);
    if (rank == 0) HOLDS(MPI_Put(&windows, 1, MPI_INT, 0, 7, 1, MPI_INT, win) == MPI_SUCCESS);
    HOLDS(MPI_Win_fence(0, win) == MPI_SUCCESS);
  }
  if (rank == 0) HOLDS(memory.front()[7] == windows && memory.back()[7] == windows);

  if (argc > 1 && std::strcmp(argv[1], "streams") == 0) {
    stream_epochs(all, memory);
    Usage::now().print_since("epochs", before);
  }
  for (MPI_Win& win : all) HOLDS(MPI_Win_free(&win) == MPI_SUCCESS);
  Usage::now().print_since("freed", before);
  MPI_Finalize();
}
