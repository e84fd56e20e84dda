// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>
#include <mpix.h>
#include <mpix_collectives.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "benchmarks/collectives/loaded_nccl.h"
#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "options.h"
#include "support/abort.h"
#include "support/domain.h"

/// What an iteration needs of a library: the planes of `p` next to those of the neighbours, and sums over all
/// processes.
namespace cg {

/// The direction `p`, in a window: the plane of the process below, its own planes, the plane of the process above.
class Direction {
 public:
  explicit Direction(const Box& box)
      : box_(box), below_(process() > 0 ? process() - 1 : MPI_PROC_NULL), above_(next_of(process())) {
    MPI_Info info = MPI_INFO_NULL;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "mpi_memory_alloc_kinds", "mpix:device"));
    // Between a post and the exchange nothing here waits, so that the exchange may carry the post.
    CHECK_MPI(MPI_Info_set(info, "mpix_lazy_post", "true"));
    const std::size_t bytes = (box.points() + 2 * box.plane()) * sizeof(double);
    CHECK_MPI(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), sizeof(double), info, MPI_COMM_WORLD, &base_, &window_));
    CHECK_MPI(MPI_Info_free(&info));
  }
  ~Direction() { CHECK_MPI(MPI_Win_free(&window_)); }
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;

  const Box& box() const { return box_; }
  MPI_Win window() const { return window_; }
  int below() const { return below_; }  ///< MPI_PROC_NULL: none
  int above() const { return above_; }
  /// From 0, the plane of the process below, on.
  double* plane(int index) const { return base_ + static_cast<std::size_t>(index) * box_.plane(); }

 private:
  static int next_of(int process) { return process + 1 < processes() ? process + 1 : MPI_PROC_NULL; }

  const Box box_;
  const int below_, above_;
  double* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

class Library {
 public:
  virtual ~Library() = default;
  /// In stream order: the planes of the neighbours have been read.
  virtual void expose() {}
  /// The outer planes go to the neighbours, and theirs come.
  virtual void exchange() = 0;
  virtual void sum(const double* mine, double* all) = 0;
};

/// Stream epochs and stream collectives.
class Mpix final : public Library {
 public:
  Mpix(const Direction& direction, launcher::Stream& stream) : direction_(direction), stream_(stream) {
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));  // CHECK_MPI says why
    CHECK_MPI(MPIX_Comm_prepare_stream(comm_, MPI_INFO_NULL));
    std::vector<int> neighbours;
    for (const int neighbour : {direction.below(), direction.above()})
      if (neighbour != MPI_PROC_NULL) neighbours.push_back(neighbour);
    alone_ = neighbours.empty();
    MPI_Group world = MPI_GROUP_NULL;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(neighbours.size()), neighbours.data(), &neighbours_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~Mpix() override {
    if (neighbours_ != MPI_GROUP_EMPTY) CHECK_MPI(MPI_Group_free(&neighbours_));
    CHECK_MPI(MPI_Comm_free(&comm_));
  }
  Mpix(const Mpix&) = delete;
  Mpix& operator=(const Mpix&) = delete;

  void expose() override {
    if (!alone_) CHECK_MPI(MPIX_Win_post_stream(neighbours_, direction_.window(), stream_.handle()));
  }
  void exchange() override {
    if (alone_) return;
    const int planes = direction_.box().planes;
    CHECK_MPI(MPI_Win_start(neighbours_, MPIX_MODE_STREAM, direction_.window()));
    put(1, direction_.below(), planes + 1);
    put(planes, direction_.above(), 0);
    CHECK_MPI(MPIX_Win_complete_wait_stream(direction_.window(), stream_.handle()));
  }
  void sum(const double* mine, double* all) override {
    CHECK_MPI(MPIX_Allreduce_stream(mine, all, 1, MPI_DOUBLE, MPI_SUM, comm_, stream_.handle()));
  }

 private:
  void put(int plane, int target, int plane_there) const {
    const int count = static_cast<int>(direction_.box().plane());
    const MPI_Aint there = static_cast<MPI_Aint>(plane_there) * count;
    CHECK_MPI(
        MPI_Put(direction_.plane(plane), count, MPI_DOUBLE, target, there, count, MPI_DOUBLE, direction_.window()));
  }

  const Direction& direction_;
  launcher::Stream& stream_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Group neighbours_ = MPI_GROUP_NULL;
  bool alone_ = false;
};

/// On a GPU behind a synchronization of the stream, and by way of pinned memory, unless MPI takes the GPU's.
class Mpi final : public Library {
 public:
  Mpi(const Direction& direction, launcher::Stream& stream, bool staged)
      : direction_(direction),
        stream_(stream),
        staged_(staged),
        own_(launcher::allocate_pinned(2)),
        pinned_(launcher::allocate_pinned(staged ? 4 * direction.box().plane() : 1)) {}

  void exchange() override {
    const int below = direction_.below(), above = direction_.above(), planes = direction_.box().planes;
    const Plane planes_out[] = {{1, below, to_below}, {planes, above, to_above}};
    const Plane planes_in[] = {{0, below, from_below}, {planes + 1, above, from_above}};
    if (staged_)
      for (const Plane& one : planes_out) copy(memory(one), direction_.plane(one.index), one);
    wait();
    MPI_Request requests[4];
    MPI_Request* request = requests;
    const int count = static_cast<int>(direction_.box().plane());
    for (const Plane& one : planes_in)
      CHECK_MPI(MPI_Irecv(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    for (const Plane& one : planes_out)
      CHECK_MPI(MPI_Isend(memory(one), count, MPI_DOUBLE, one.process, 0, MPI_COMM_WORLD, request++));
    CHECK_MPI(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    if (staged_)
      for (const Plane& one : planes_in) copy(direction_.plane(one.index), memory(one), one);
  }
  void sum(const double* mine, double* all) override {
    if (staged_) place::copy(stream_, own_.get(), mine, sizeof *mine);
    wait();
    CHECK_MPI(MPI_Allreduce(staged_ ? own_.get() : mine, staged_ ? own_.get() + 1 : all, 1, MPI_DOUBLE, MPI_SUM,
                            MPI_COMM_WORLD));
    if (staged_) place::copy(stream_, all, own_.get() + 1, sizeof *all);
  }

 private:
  enum Slot { from_below, from_above, to_below, to_above };
  struct Plane {
    int index, process;
    Slot slot;
  };
  double* memory(const Plane& one) const {
    return staged_ ? pinned_.get() + one.slot * direction_.box().plane() : direction_.plane(one.index);
  }
  void copy(double* to, const double* from, const Plane& one) {
    if (one.process != MPI_PROC_NULL) place::copy(stream_, to, from, direction_.box().plane() * sizeof(double));
  }
  /// On the host kernels have ended when they return.
  void wait() {
    if (support::ranks_are_blocks) stream_.synchronize();
  }

  const Direction& direction_;
  launcher::Stream& stream_;
  const bool staged_;
  const launcher::Pinned own_, pinned_;
};

class Nccl final : public Library {
 public:
  Nccl(const Direction& direction, launcher::Stream& stream, std::unique_ptr<nccl::World> world)
      : direction_(direction), stream_(stream), world_(std::move(world)) {}

  void exchange() override {
    const int planes = direction_.box().planes;
    NCCL_CALL(*world_, GroupStart, );
    swap(1, direction_.below(), 0);
    swap(planes, direction_.above(), planes + 1);
    NCCL_CALL(*world_, GroupEnd, );
  }
  void sum(const double* mine, double* all) override {
    NCCL_CALL(*world_, AllReduce, mine, all, 1, nccl::float64, nccl::sum, world_->comm(), stream_.handle());
  }

 private:
  void swap(int out, int process, int in) const {
    if (process == MPI_PROC_NULL) return;
    const std::size_t count = direction_.box().plane();
    NCCL_CALL(*world_, Send, direction_.plane(out), count, nccl::float64, process, world_->comm(), stream_.handle());
    NCCL_CALL(*world_, Recv, direction_.plane(in), count, nccl::float64, process, world_->comm(), stream_.handle());
  }

  const Direction& direction_;
  launcher::Stream& stream_;
  const std::unique_ptr<nccl::World> world_;
};

}  // namespace cg
