// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "node_memory.h"
#include "nodes.h"

/// Reduce to rank 0 of a communicator, and broadcast from there, led by the processors (chapters 3 and 4). A call of
/// one is followed by a call of the other, and by the end of all that is enqueued.
namespace classic {

class Level {
 public:
  Level(MPI_Comm comm, launcher::Stream& stream) : stream_(stream), marks_(comm) {
    CHECK_MPI(MPI_Comm_rank(comm, &rank_));
    CHECK_MPI(MPI_Comm_size(comm, &ranks_));
  }
  virtual ~Level() = default;
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  /// Where rank 0 has the result; elsewhere null.
  virtual const float* reduce(const float* from, std::size_t count) = 0;
  /// Memory of rank 0 that a result can be broadcast from, until the next reduce().
  virtual float* place() = 0;
  /// `result`, at rank 0: what reduce() told, or place().
  virtual void broadcast(const float* result, float* to, std::size_t count) = 0;

 protected:
  void copy(float* to, const float* from, std::size_t count) {
    if (to != from) place::copy(stream_, to, from, count * sizeof(float));
  }

  launcher::Stream& stream_;
  Marks marks_;
  int rank_ = 0, ranks_ = 1;
  std::uint64_t call_ = 0;
};

/// GSB, the GPU shared buffer: all copy into the parts of one buffer, its owner reduces them, and all copy the result.
///
/// | word      | written by, when                               | polled by             |
/// |-----------|------------------------------------------------|-----------------------|
/// | copied[r] | r: its copy is enqueued, and its mark behind it | rank 0, round robin   |
/// | completed | rank 0: likewise the result                    | all others            |
///
/// The words are numbers of calls, where the dissertation toggles flags. A rank overwrites its part in the next call,
/// behind its copy of this one's result, which waits for the kernel that has read the part; and rank 0 the result
/// behind all marks of the next call, which follow the copies of this one's.
class SharedBuffer final : public Level {
 public:
  SharedBuffer(MPI_Comm comm, launcher::Stream& stream, std::size_t most)
      : Level(comm, stream),
        most_(most),
        buffer_(comm, 0, (static_cast<std::size_t>(ranks_) + 1) * most * sizeof(float)),
        directory_(comm, ranks_, 2) {}

  const float* reduce(const float* from, std::size_t count) override {
    ++call_;
    copy(part(rank_), from, count);
    marks_.record(stream_);
    directory_.store(rank_, copied, call_);
    if (rank_ != 0) return nullptr;
    std::vector<bool> seen(static_cast<std::size_t>(ranks_));
    seen[0] = true;
    for (int missing = ranks_ - 1; missing > 0;) {
      bool some = false;
      for (int rank = 1; rank < ranks_; ++rank) {
        if (seen[static_cast<std::size_t>(rank)] || directory_.load(rank, copied) < call_) continue;
        marks_.wait(stream_, rank);
        seen[static_cast<std::size_t>(rank)] = some = true;
        --missing;
      }
      if (!some) sched_yield();
    }
    sum_parts(stream_, part(0), most_, ranks_, place(), count);
    return place();
  }
  float* place() override { return part(ranks_); }
  void broadcast(const float* result, float* to, std::size_t count) override {
    if (rank_ == 0) {
      copy(place(), result, count);
      marks_.record(stream_);
      directory_.store(0, completed, call_);
    } else {
      directory_.await(0, completed, call_);
      marks_.wait(stream_, 0);
    }
    copy(to, place(), count);
  }

 private:
  enum Word { copied, completed };
  float* part(int rank) const { return buffer_.get() + static_cast<std::size_t>(rank) * most_; }

  const std::size_t most_;
  const DeviceMemory buffer_;
  const Directory directory_;
};

/// BTB, the binomial tree: in level k a rank with bit k copies what it has to the rank without, which adds it. The
/// buffers are spread over half of the ranks. The way back is the same tree from the root.
///
/// | word      | written by, when                                                        | polled by  |
/// |-----------|-------------------------------------------------------------------------|------------|
/// | ready[r]  | r, call and level: what came in the level before is enqueued to be added | its child |
/// | sent[r]   | r, call and level: its copy is enqueued                                 | its parent |
/// | result[r] | r, call: its copy of the result is enqueued                             | its children |
///
/// Each with the rank's mark behind what it tells. Sums and results of a call lie in one of two buffers in turn: a
/// parent that writes one again has had its children's copies of the call between, which follow what they read.
class Tree final : public Level {
 public:
  Tree(MPI_Comm comm, launcher::Stream& stream, std::size_t most)
      : Level(comm, stream), most_(most), directory_(comm, ranks_, 3) {
    for (int rank = 0; rank < ranks_; ++rank)
      buffers_.push_back(rank % 2 == 0 ? std::make_unique<DeviceMemory>(comm, rank, 3 * most * sizeof(float))
                                       : nullptr);
  }

  const float* reduce(const float* from, std::size_t count) override {
    ++call_;
    const float* mine = from;
    for (int level = 0; (1 << level) < ranks_; ++level) {
      const int distance = 1 << level;
      const std::uint64_t now = call_ * most_levels + static_cast<std::uint64_t>(level);
      if (rank_ & distance) {
        const int parent = rank_ - distance;
        directory_.await(parent, ready, now);
        marks_.wait(stream_, parent);
        copy(incoming(parent), mine, count);
        marks_.record(stream_);
        directory_.store(rank_, sent, now);
        return nullptr;
      }
      const int child = rank_ + distance;
      if (child >= ranks_) continue;
      marks_.record(stream_);
      directory_.store(rank_, ready, now);
      directory_.await(child, sent, now);
      marks_.wait(stream_, child);
      sum_two(stream_, mine, incoming(rank_), sum(rank_), count);
      mine = sum(rank_);
    }
    return mine;
  }
  float* place() override { return sum(rank_); }
  void broadcast(const float* result, float* to, std::size_t count) override {
    const int lowest = rank_ & -rank_;
    const bool has_children = rank_ % 2 == 0 && rank_ + 1 < ranks_;
    float* const here = has_children ? sum(rank_) : to;
    if (rank_ == 0) {
      copy(here, result, count);
    } else {
      const int parent = rank_ - lowest;
      directory_.await(parent, has_result, call_);
      marks_.wait(stream_, parent);
      copy(here, sum(parent), count);
    }
    if (!has_children) return;
    marks_.record(stream_);
    directory_.store(rank_, has_result, call_);
    copy(to, here, count);
  }

 private:
  enum Word { ready, sent, has_result };
  static constexpr std::uint64_t most_levels = 32;
  float* buffer(int rank) const { return buffers_[static_cast<std::size_t>(rank)]->get(); }
  float* incoming(int rank) const { return buffer(rank); }
  float* sum(int rank) const { return buffer(rank) + (1 + call_ % 2) * most_; }

  const std::size_t most_;
  std::vector<std::unique_ptr<DeviceMemory>> buffers_;
  const Directory directory_;
};

enum class Shape { gsb, btb };
inline std::unique_ptr<Level> make_level(Shape shape, MPI_Comm comm, launcher::Stream& stream, std::size_t most) {
  if (shape == Shape::gsb) return std::make_unique<SharedBuffer>(comm, stream, most);
  return std::make_unique<Tree>(comm, stream, most);
}

/// Inside a GPU, and between the first ranks of the GPUs of a node: X-Y. With one GPU only the first. Between the
/// leaders of nodes, with several: MPI.
class Hierarchy {
 public:
  Hierarchy(const Places& places, Shape inside, Shape between, launcher::Stream& stream, std::size_t most)
      : stream_(stream),
        inside_(make_level(inside, places.of_gpu, stream, most)),
        network_(places.of_node_leaders, stream, most) {
    if (places.of_gpu_leaders != MPI_COMM_NULL && places.gpus > 1)
      between_ = make_level(between, places.of_gpu_leaders, stream, most);
  }

  /// Returns when it is done.
  void allreduce(const float* from, float* to, std::size_t count) {
    const float* result = inside_->reduce(from, count);
    if (between_) {
      const float* const all = of_nodes(between_->reduce(result, count), *between_, count);
      between_->broadcast(all, inside_->place(), count);
      result = inside_->place();
    } else {
      result = of_nodes(result, *inside_, count);
    }
    inside_->broadcast(result, to, count);
    stream_.synchronize();
  }

 private:
  /// The leader of a node has that of all nodes in the place of the level that broadcasts it.
  const float* of_nodes(const float* result, Level& level, std::size_t count) {
    if (!network_.is_there()) return result;
    network_.allreduce(result, level.place(), count);
    return level.place();
  }

  launcher::Stream& stream_;
  std::unique_ptr<Level> inside_, between_;
  Network network_;
};

}  // namespace classic
