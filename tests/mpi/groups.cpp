// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
//
// Groups that live for one epoch: MPI gives their handles to others.
#include <dlfcn.h>

#include <functional>
#include <set>
#include <utility>

#include "support/catch.h"
#include "support/epochs.h"

using namespace test;

namespace {

bool in_fortran = false;

/// As a Fortran interface may free it, where there is one: unseen by libmpix.
void free_group(MPI_Group* group) { MPI_OK(in_fortran ? PMPI_Group_free(group) : MPI_Group_free(group)); }

MPI_Group group_of(MPI_Group all, int rank) {
  MPI_Group group;
  MPI_OK(MPI_Group_incl(all, 1, &rank, &group));
  return group;
}

/// Epochs to the right and to the left, with groups of their own. `between`: called once.
void alternate(const std::function<void()>& between) {
  MPI_Group all;
  MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  Window window(Memory::device, 64);
  Buffer source(8);
  Stream stream;
  std::set<std::pair<MPI_Group, int>> used;
  std::set<MPI_Group> handles;
  for (int step = 0; step < scaled(60); ++step) {
    if (step == 6) between();
    const bool to_right = step / 3 % 2 == 0;
    const int target = to_right ? right_of(rank()) : left_of(rank());
    const int origin = to_right ? left_of(rank()) : right_of(rank());
    MPI_Group from = group_of(all, origin);
    MPI_OK(MPIX_Win_post_stream(from, window, stream));
    used.insert({from, origin});
    handles.insert(from);
    free_group(&from);
    MPI_Group to = group_of(all, target);
    MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
    used.insert({to, target});
    handles.insert(to);
    free_group(&to);
    const double value = 1000.0 * step + rank();
    source.write(&value, sizeof value);
    MPI_OK(MPI_Put(source.data(), 1, MPI_DOUBLE, target, 0, 1, MPI_DOUBLE, window));
    MPI_OK(MPIX_Win_complete_stream(window, stream));
    MPI_OK(MPIX_Win_wait_stream(window, stream));
    stream.synchronize();
    CHECK(contents<double>(window.base(), 8).front() == 1000.0 * step + origin);
  }
  free_group(&all);
  // else this has tested nothing
  CHECK(used.size() > handles.size());
}

}  // namespace

TEST_CASE("the handle of a group that was freed is another group's") {
  NEEDS_RANKS(3);
  alternate([] {});
}

TEST_CASE("the same group has other ranks in a window of another communicator") {
  NEEDS_RANKS(3);
  MPI_Comm backwards;
  MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, size() - rank(), &backwards));
  {
    Window forth(Memory::device, 64), back(Memory::device, 64, 1, backwards);
    const Group to(right_of(rank())), from(left_of(rank()));
    Stream stream;
    Buffer source(8);
    for (int step = 0; step < 6; ++step) {
      Window& window = step % 2 == 0 ? forth : back;
      const int target = step % 2 == 0 ? right_of(rank()) : size() - 1 - right_of(rank());
      const double value = 1000.0 * step + rank();
      source.write(&value, sizeof value);
      MPI_OK(MPIX_Win_post_stream(from, window, stream));
      MPI_OK(MPI_Win_start(to, MPIX_MODE_STREAM, window));
      MPI_OK(MPI_Put(source.data(), 1, MPI_DOUBLE, target, 0, 1, MPI_DOUBLE, window));
      MPI_OK(MPIX_Win_complete_wait_stream(window, stream));
      stream.synchronize();
      CHECK(contents<double>(window.base(), 8).front() == 1000.0 * step + left_of(rank()));
    }
  }
  MPI_OK(MPI_Comm_free(&backwards));
}

// A plug-in may bring a Fortran interface late, and for itself.
TEST_CASE("groups are freed by a Fortran interface", "[.fortran]") {
  NEEDS_RANKS(3);
  alternate([] {
    REQUIRE(dlopen("tests/support/.libs/libfortran.so", RTLD_NOW | RTLD_LOCAL) != nullptr);
    in_fortran = true;
  });
}
