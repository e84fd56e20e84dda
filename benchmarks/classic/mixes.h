// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "node_memory.h"
#include "nodes.h"

/// Gather, kernel, broadcast, by ranks of one GPU, where some copies go by memory of the host (HS) and some by mapped
/// memory of the GPU (IPC): chapter 5. Rank 0 leads, and takes part in neither. With several nodes this is what each
/// does, of a GPU each, and MPI stands between the stages: ranks are those of a node here, unless it is said.
namespace classic {

enum Mechanism { staged, ipc, mechanisms };

/// Which mechanism the next copies take.
class Mixing {
 public:
  virtual ~Mixing() = default;
  /// So many copies are to come. `used`: in the stage before, by mechanism; all true in the first.
  virtual void begin(int copies, const bool (&used)[mechanisms]) = 0;
  /// Whether a rank that has arrived may copy now, and how.
  virtual bool next(Mechanism* how) = 0;
  /// One of its copies is over.
  virtual void completed(Mechanism) {}
};

/// Static: the first ranks to arrive take HS, so many as the table says, the others IPC; all at once.
class Static final : public Mixing {
 public:
  void set(int staged_ones) { staged_ones_ = staged_ones; }
  void begin(int copies, const bool (&)[mechanisms]) override { left_ = std::min(staged_ones_, copies); }
  bool next(Mechanism* how) override {
    *how = left_-- > 0 ? staged : ipc;
    return true;
  }

 private:
  int staged_ones_ = 0, left_ = 0;
};

/// Dynamic: one copy of each to begin with. Where a copy ends, and its mechanism has ended d more than the other one,
/// it gets 2^d more, or one if d ≤ 0. (The dissertation sends the last copy again by the other mechanism where its own
/// has not ended any yet. This does not: it waits.)
class Dynamic final : public Mixing {
 public:
  void begin(int, const bool (&used)[mechanisms]) override {
    for (int how = 0; how < mechanisms; ++how) {
      ended_[how] = 0;
      may_begin_[how] = used[how] ? 1 : 0;
    }
  }
  bool next(Mechanism* how) override {
    if (may_begin_[staged] + may_begin_[ipc] == 0) return false;
    *how = may_begin_[ipc] >= may_begin_[staged] ? ipc : staged;
    --may_begin_[*how];
    return true;
  }
  void completed(Mechanism how) override {
    ++ended_[how];
    const int ahead = ended_[how] - ended_[how == ipc ? staged : ipc];
    may_begin_[how] += ahead <= 0 ? 1 : 1 << std::min(ahead, 10);
  }

 private:
  int ended_[mechanisms] = {}, may_begin_[mechanisms] = {};
};

/// The stages of a call, led by rank 0. A word of the directory for each other rank, written by both in turn:
///
/// | state of r      | written by | says                                                        | leader does |
/// |-----------------|------------|-------------------------------------------------------------|-------------|
/// | arrived         | r          | it may be told how to copy                                  | assigns, as the mixing says |
/// | staged_assigned, ipc_assigned | leader | how                                                | |
/// | ipc_begun       | r          | its copy is enqueued, its mark behind it                    | asks the mark |
/// | ended           | r          | its copy is over; staged: into, or out of, memory of the host | gather, staged: copies on |
///
/// A rank arrives in a stage when it is through with the one before, and the leader ends a call when all copies of its
/// last stage are over: so no buffer is written while anybody reads it.
class MixedCopies {
 public:
  MixedCopies(const Places& places, launcher::Stream& stream, std::size_t most)
      : stream_(stream),
        rank_(places.local),
        ranks_(places.ranks_of_node),
        first_(static_cast<std::size_t>(places.node * places.ranks_of_node)),
        parts_(static_cast<std::size_t>(places.nodes * places.ranks_of_node)),
        most_(most),
        device_(places.of_node, 0, bytes()),
        host_(places.of_node, bytes()),
        directory_(places.of_node, ranks_, 2),
        marks_(places.of_node),
        network_(places.of_node_leaders, stream, parts_ * most) {}
  MixedCopies(const MixedCopies&) = delete;
  MixedCopies& operator=(const MixedCopies&) = delete;

  /// Return when they are done.
  void allreduce(Mixing& mixing, const float* from, float* to, std::size_t count) {
    gather(mixing, from, count);
    if (rank_ == 0) {
      sum_parts(stream_, part(0, count), count, ranks_, result(), count);
      if (network_.is_there()) network_.allreduce(result(), result(), count);
    }
    broadcast(mixing, to, result(), count);
  }
  void allgather(Mixing& mixing, const float* from, float* to, std::size_t count) {
    gather(mixing, from, count);
    const std::size_t of_node = count * static_cast<std::size_t>(ranks_);
    if (network_.is_there())
      network_.allgather([&](float* here) { copy(here, part(0, count), of_node); }, device_.get(), of_node);
    broadcast(mixing, to, device_.get(), count * parts_);
  }
  /// At the leader: copies that went by memory of the host in the last call's stages.
  int staged_in_gather() const { return staged_copies_[0]; }
  int staged_in_broadcast() const { return staged_copies_[1]; }

 private:
  enum Word { state, host_is_ready };
  enum State { nothing, arrived, staged_assigned, ipc_assigned, ipc_begun, ended, states };

  std::size_t bytes() const { return (parts_ + 1) * most_ * sizeof(float); }
  float* on_host() const { return static_cast<float*>(host_.get()); }
  /// Of a rank, among those of all nodes, as an all-gather has them.
  float* part(int rank, std::size_t count) const {
    return device_.get() + (first_ + static_cast<std::size_t>(rank)) * count;
  }
  float* result() const { return device_.get() + parts_ * most_; }
  /// The same place in memory of the host.
  float* staged_place(const float* in_device) const { return on_host() + (in_device - device_.get()); }

  void copy(float* to, const float* from, std::size_t count) { place::copy(stream_, to, from, count * sizeof(float)); }
  std::uint64_t coded(State what) const { return stage_ * states + what; }
  void say(int rank, State what) const { directory_.store(rank, state, coded(what)); }
  bool is_at(int rank, State what) const { return directory_.load(rank, state) == coded(what); }

  /// It may have arrived in the next stage.
  bool is_past(int rank, State what) const { return directory_.load(rank, state) >= coded(what); }

  State await_assignment() const {
    while (!is_at(rank_, staged_assigned) && !is_at(rank_, ipc_assigned)) sched_yield();
    return is_at(rank_, ipc_assigned) ? ipc_assigned : staged_assigned;
  }

  void gather(Mixing& mixing, const float* from, std::size_t count) {
    ++stage_;
    float* const mine = part(rank_, count);
    if (rank_ == 0) {
      copy(mine, from, count);
      const bool all[mechanisms] = {true, true};
      staging_ = {};
      staged_copies_[0] = lead(mixing, all, [&](int rank) {
        float* const theirs = part(rank, count);
        copy(theirs, staged_place(theirs), count);
      });
      return;
    }
    say(rank_, arrived);
    if (await_assignment() == ipc_assigned) {
      copy(mine, from, count);
      marks_.record(stream_);
      say(rank_, ipc_begun);
    } else {
      copy(staged_place(mine), from, count);
      stream_.synchronize();
      say(rank_, ended);
    }
  }

  void broadcast(Mixing& mixing, float* to, const float* from, std::size_t count) {
    ++stage_;
    if (rank_ == 0) {
      marks_.record(stream_);
      host_holds_ = false;
      staging_ = {from, count};
      staged_copies_[1] = lead(mixing, used_, [](int) {});
      copy(to, from, count);
      stream_.synchronize();
      return;
    }
    say(rank_, arrived);
    if (await_assignment() == ipc_assigned) {
      marks_.wait(stream_, 0);
      copy(to, from, count);
    } else {
      directory_.await(0, host_is_ready, stage_);
      copy(to, staged_place(from), count);
    }
    stream_.synchronize();
    say(rank_, ended);
  }

  /// One stage. Returns how many copies were staged.
  template <class WhenStaged>
  int lead(Mixing& mixing, const bool (&may_use)[mechanisms], WhenStaged when_staged) {
    mixing.begin(ranks_ - 1, may_use);
    std::vector<Mechanism> how(static_cast<std::size_t>(ranks_), mechanisms);
    std::vector<bool> over(how.size());
    bool has_ended[mechanisms] = {};
    int count_of_staged = 0;
    for (int missing = ranks_ - 1; missing > 0;) {
      bool some = false;
      for (int rank = 1; rank < ranks_; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        if (over[at]) continue;
        if (how[at] == mechanisms) {
          Mechanism chosen;
          if (!is_at(rank, arrived) || !mixing.next(&chosen)) continue;
          how[at] = chosen;
          if (chosen == staged) {
            ++count_of_staged;
            stage_on_host();
          }
          say(rank, chosen == ipc ? ipc_assigned : staged_assigned);
          some = true;
          continue;
        }
        if (how[at] == ipc ? !is_past(rank, ipc_begun) || !marks_.is_reached(rank) : !is_past(rank, ended)) continue;
        if (how[at] == ipc)
          marks_.wait(stream_, rank);
        else
          when_staged(rank);
        has_ended[how[at]] = over[at] = some = true;
        mixing.completed(how[at]);
        --missing;
      }
      if (!some) sched_yield();
    }
    std::copy_n(has_ended, static_cast<int>(mechanisms), used_);
    return count_of_staged;
  }
  /// Once in a broadcast.
  void stage_on_host() {
    if (staging_.count == 0 || host_holds_) return;
    copy(staged_place(staging_.from), staging_.from, staging_.count);
    stream_.synchronize();
    directory_.store(0, host_is_ready, stage_);
    host_holds_ = true;
    staging_ = {};
  }

  launcher::Stream& stream_;
  const int rank_, ranks_;
  const std::size_t first_, parts_;  ///< the node's first part; those of all nodes
  const std::size_t most_;           ///< elements of a part
  const DeviceMemory device_;
  const HostMemory host_;
  const Directory directory_;
  Marks marks_;
  Network network_;
  std::uint64_t stage_ = 0;
  struct {
    const float* from = nullptr;
    std::size_t count = 0;
  } staging_;  ///< what a broadcast may have to stage; the leader's
  bool host_holds_ = false;
  bool used_[mechanisms] = {true, true};
  int staged_copies_[2] = {};
};

}  // namespace classic
