// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>

#include <cstddef>
#include <vector>

#include "stream.h"
#include "support/abort.h"

/// What loops over libmpix's stream epochs need: windows of all processes, and which of these exchange.
namespace epochs {

/// Of the world; empty ones as well.
class Group {
 public:
  explicit Group(const std::vector<int>& processes) {
    MPI_Group world = MPI_GROUP_NULL;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(processes.size()), processes.data(), &group_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~Group() {
    if (group_ != MPI_GROUP_EMPTY) CHECK_MPI(MPI_Group_free(&group_));
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  MPI_Group get() const { return group_; }
  bool is_empty() const { return group_ == MPI_GROUP_EMPTY; }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

/// So many doubles. One process puts nowhere, and not every MPI has a window for it: there is none then.
class Window {
 public:
  /// Memory of its own.
  explicit Window(std::size_t count) { make(nullptr, count); }
  /// That of a domain, say, which the epochs and others share.
  Window(double* base, std::size_t count) { make(base, count); }
  ~Window() {
    if (window_ != MPI_WIN_NULL) CHECK_MPI(MPI_Win_free(&window_));
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  MPI_Win get() const { return window_; }
  double* at(std::size_t place) const { return base_ + place; }
  /// In an access epoch. A process that is MPI_PROC_NULL gets nothing.
  void put(const double* from, std::size_t size, int target, std::size_t place) const {
    const int count = static_cast<int>(size);
    CHECK_MPI(MPI_Put(from, count, MPI_DOUBLE, target, static_cast<MPI_Aint>(place), count, MPI_DOUBLE, window_));
  }

 private:
  void make(double* base, std::size_t count) {
    int processes = 1;
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    if (processes == 1) return;
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    // Between a post and the next call on the window nothing here waits, so that this call may carry the post.
    CHECK_MPI(MPI_Info_set(info, "mpix_lazy_post", "true"));
    const auto bytes = static_cast<MPI_Aint>(count * sizeof(double));
    base_ = base;
    if (base) {
      CHECK_MPI(MPI_Win_create(base, bytes, sizeof(double), info, MPI_COMM_WORLD, &window_));
    } else {
      CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
      CHECK_MPI(MPI_Win_allocate(bytes, sizeof(double), info, MPI_COMM_WORLD, &base_, &window_));
    }
    CHECK_MPI(MPI_Info_free(&info));
  }

  double* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// Those that put to this process, and those to which it puts; there may be none.
class Partners {
 public:
  Partners(const std::vector<int>& origins, const std::vector<int>& targets) : origins_(origins), targets_(targets) {}

  bool receives() const { return !origins_.is_empty(); }
  bool sends() const { return !targets_.is_empty(); }
  /// In stream order behind what reads the memory that is put over.
  void post(const Window& window, launcher::Stream& stream) const {
    if (receives()) CHECK_MPI(MPIX_Win_post_stream(origins_.get(), window.get(), stream.handle()));
  }
  /// `put` puts to the targets. What follows in the stream has what the origins have put.
  template <class Put>
  void exchange(const Window& window, launcher::Stream& stream, const Put& put) const {
    if (sends()) {
      CHECK_MPI(MPI_Win_start(targets_.get(), MPIX_MODE_STREAM, window.get()));
      put();
    }
    // In one call they are cheaper.
    if (sends() && receives())
      CHECK_MPI(MPIX_Win_complete_wait_stream(window.get(), stream.handle()));
    else if (sends())
      CHECK_MPI(MPIX_Win_complete_stream(window.get(), stream.handle()));
    else if (receives())
      CHECK_MPI(MPIX_Win_wait_stream(window.get(), stream.handle()));
  }

 private:
  const Group origins_, targets_;
};

}  // namespace epochs
