// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstring>

#include "cells.h"
#include "launcher.h"
#include "support/abort.h"

/// The same particles as programs without ranks in kernels have them: the host launches each step, and exchanges what
/// lies at the ends of a process by MPI_Isend and MPI_Irecv. On a GPU by way of pinned memory of the host, into which
/// kernels pack; the counters come along, so that no more is sent than there is.
namespace particles {

struct UpdateCells {
  Fields fields;
  Law law;
  int cells, ranks;
  bool is_first, is_last;  ///< of the processes
  MPIX_DEV_METHOD void operator()(int rank) const {
    update(fields, Stretch(rank, cells, is_first && rank == 0, is_last && rank == ranks - 1, false), law);
  }
};
struct TakeIn {
  Fields fields;
  int cells;
  MPIX_DEV_METHOD void operator()(int rank) const { take_in(fields, Stretch(rank, cells, false, false, false)); }
};

/// A cell of some bins, and where it lies packed; null: nowhere.
struct Packed {
  char* cell;
  double* buffer;
};
/// The first of two, or the second.
template <class Item>
struct CopyCells {
  Bins<Item> bins;
  Packed two[2];
  bool pack;
  MPIX_DEV_METHOD void operator()(int which) const {
    double* const buffer = two[which].buffer;
    if (!buffer) return;
    double* const cell = reinterpret_cast<double*>(two[which].cell);
    const double* const from = pack ? cell : buffer;
    double* const to = pack ? buffer : cell;
    const std::size_t length = bins.bytes(*reinterpret_cast<const int*>(from)) / sizeof(double);
    const mpix::dev::Team team = team_here();
    for (std::size_t i = team.index; i < length; i += team.size) to[i] = from[i];
  }
};

class HostLoop {
 public:
  HostLoop(int cells, int ranks, int threads, int room) : cells_(cells), ranks_(ranks), launcher_(ranks, threads) {
    int process = 0, processes = 1;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
    left_ = process > 0 ? process - 1 : MPI_PROC_NULL;
    right_ = process + 1 < processes ? process + 1 : MPI_PROC_NULL;
    const std::size_t most = Bins<Particle>{nullptr, room, -1}.stride();
    for (launcher::Pinned& one : buffers_) one = launcher::allocate_pinned(most / sizeof(double));
  }

  void run(Fields fields, const Law& law, int iterations) {
    const bool is_first = left_ == MPI_PROC_NULL, is_last = right_ == MPI_PROC_NULL;
    for (int i = 0; i < iterations; ++i) {
      exchange(fields.now, fields.now);
      launcher_.run(UpdateCells{fields, law, cells_, ranks_, is_first, is_last}, ranks_);
      exchange(fields.to_left, fields.to_right);
      launcher_.run(TakeIn{fields, cells_}, ranks_);
      swap_now_and_next(fields);
    }
    launcher_.synchronize();
  }

 private:
  enum Buffer { from_left, from_right, to_left, to_right, buffers };

  /// The first cell goes to the left, the last one to the right; what comes goes into the cells before and behind.
  template <class Item>
  void exchange(const Bins<Item>& leftward, const Bins<Item>& rightward) {
    if (left_ == MPI_PROC_NULL && right_ == MPI_PROC_NULL) return;
    const int last = cells_ * ranks_;
    const auto at = [this](char* cell, int process, Buffer buffer) {
      return Packed{cell, process == MPI_PROC_NULL ? nullptr : buffers_[buffer].get()};
    };
    const CopyCells<Item> pack{
        leftward, {at(leftward.cell(1), left_, to_left), at(rightward.cell(last), right_, to_right)}, true};
    const CopyCells<Item> unpack{
        leftward, {at(rightward.cell(0), left_, from_left), at(leftward.cell(last + 1), right_, from_right)}, false};
    launcher_.run(pack, 2);
    launcher_.synchronize();  // packed; and what was received before is unpacked
    MPI_Request requests[4];
    receive(leftward.stride(), left_, from_left, requests);
    receive(leftward.stride(), right_, from_right, requests + 1);
    send(leftward, left_, to_left, requests + 2);
    send(leftward, right_, to_right, requests + 3);
    CHECK_MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    launcher_.run(unpack, 2);
  }
  void receive(std::size_t most, int process, Buffer buffer, MPI_Request* request) const {
    CHECK_MPI(MPI_Irecv(buffers_[buffer].get(), static_cast<int>(most / sizeof(double)), MPI_DOUBLE, process, 0,
                        MPI_COMM_WORLD, request));
  }
  template <class Item>
  void send(const Bins<Item>& bins, int process, Buffer buffer, MPI_Request* request) const {
    int count = 0;
    if (process != MPI_PROC_NULL) std::memcpy(&count, buffers_[buffer].get(), sizeof count);
    CHECK_MPI(MPI_Isend(buffers_[buffer].get(), static_cast<int>(bins.bytes(count) / sizeof(double)), MPI_DOUBLE,
                        process, 0, MPI_COMM_WORLD, request));
  }

  const int cells_, ranks_;  // cells of a rank, ranks of this process
  launcher::Launcher launcher_;
  int left_ = MPI_PROC_NULL, right_ = MPI_PROC_NULL;  ///< the processes with the cells before and behind
  launcher::Pinned buffers_[buffers];
};

}  // namespace particles
