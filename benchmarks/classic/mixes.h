// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/collectives/memory.h"
#include "benchmarks/dev/stream.h"
#include "kernels.h"
#include "mixing.h"
#include "node_memory.h"
#include "nodes.h"

/// Gather, kernel, broadcast, by ranks of one GPU, where some copies go by memory of the host (HS) and some by mapped
/// memory of the GPU (IPC): chapter 5. Rank 0 leads, and takes part in neither. With several nodes this is what each
/// does, of a GPU each, and MPI stands between the stages: ranks are those of a node here, unless it is said.
namespace classic {

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
///
/// In a gather the mixing may have the last copy sent again by the other mechanism. That is a word of its own, as the
/// rank may have arrived in the next stage:
///
/// | word of r | written by | says                                           | then                                      |
/// |-----------|------------|------------------------------------------------|-------------------------------------------|
/// | asked     | leader     | send again                                     | of the next two one comes, and never both |
/// | withdrawn | leader     | the slow copy is over                          | it is taken                               |
/// | taken     | r          | it sends again: the slow copy counts no more   | r goes on by its second stream            |
/// | sent      | r          | IPC: enqueued, its second mark behind; HS: it is in memory of the host | the leader asks the mark, or copies on |
///
/// The slow copy cannot be cancelled: it runs beside what follows, to the end of the call, where r waits for both of
/// its streams, so that neither its buffer nor a place is written for another call before. Until then:
///
/// | slow, r's | may still write                | the other copy is in        | read there by                           |
/// |-----------|--------------------------------|-----------------------------|-----------------------------------------|
/// | HS        | r's part in memory of the host | r's part in the device      | all. HS has ended none: the broadcast does without, and leaves memory of the host alone |
/// | IPC       | r's part in the device         | a spare part of the device, | the leader: the kernel, or what it stages. IPC has ended none: the broadcast goes by HS |
/// |           |                                | by r's in memory of the host |                                        |
///
/// A broadcast sends nothing again. Both of its copies would write the buffer that the rank receives in, and the slow
/// one would read what the next call overwrites: the call would have to wait for the slow copy all the same.
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
        directory_(places.of_node, ranks_, 3),
        marks_(places.of_node),
        second_marks_(places.of_node),
        second_(1, loops::threads),
        network_(places.of_node_leaders, stream, parts_ * most) {}
  MixedCopies(const MixedCopies&) = delete;
  MixedCopies& operator=(const MixedCopies&) = delete;

  /// For tests: in a gather, copies of this mechanism begin late.
  void slow_down(Mechanism how) { slow_ = how; }

  /// Return when they are done. What the buffers are read and written by before is over.
  void allreduce(Mixing& mixing, const float* from, float* to, std::size_t count) {
    gather(mixing, from, count);
    if (rank_ == 0) {
      sum_parts(stream_, part(0, count), count, ranks_, result(), count, moved_ ? spare() : nullptr, moved_);
      moved_ = 0;
      if (network_.is_there()) network_.allreduce(result(), result(), count);
    }
    broadcast(mixing, to, result(), count);
  }
  void allgather(Mixing& mixing, const float* from, float* to, std::size_t count) {
    gather(mixing, from, count);
    const std::size_t of_node = count * static_cast<std::size_t>(ranks_);
    if (network_.is_there())
      network_.allgather([&](float* here) { copy_parts(here, part(0, count), of_node); }, device_.get(), of_node);
    broadcast(mixing, to, device_.get(), count * parts_);
  }
  /// At the leader: copies that went by memory of the host in the last call's stages.
  int staged_in_gather() const { return staged_copies_[0]; }
  int staged_in_broadcast() const { return staged_copies_[1]; }
  /// Whether its last copy to be gathered came by the other mechanism.
  bool has_come_again() const { return has_come_again_; }

 private:
  enum Word { state, host_is_ready, again };
  enum State {
    nothing,
    arrived,
    staged_assigned,
    ipc_assigned,
    ipc_begun,
    ended,
    asked,
    withdrawn,
    taken,
    sent,
    states
  };

  std::size_t bytes() const { return (parts_ + 2) * most_ * sizeof(float); }
  float* on_host() const { return static_cast<float*>(host_.get()); }
  /// Of a rank, among those of all nodes, as an all-gather has them.
  float* part(int rank, std::size_t count) const {
    return device_.get() + (first_ + static_cast<std::size_t>(rank)) * count;
  }
  float* result() const { return device_.get() + parts_ * most_; }
  float* spare() const { return result() + most_; }
  /// The same place in memory of the host.
  float* staged_place(const float* in_device) const { return on_host() + (in_device - device_.get()); }

  void copy(float* to, const float* from, std::size_t count) { place::copy(stream_, to, from, count * sizeof(float)); }
  std::uint64_t coded(State what) const { return stage_ * states + what; }
  void say(int rank, State what) const { directory_.store(rank, state, coded(what)); }
  bool is_at(int rank, State what) const { return directory_.load(rank, state) == coded(what); }

  /// It may have arrived in the next stage.
  bool is_past(int rank, State what) const { return directory_.load(rank, state) >= coded(what); }

  Mechanism await_assignment() {
    while (!is_at(rank_, staged_assigned) && !is_at(rank_, ipc_assigned)) {
      (void)sends_again();
      sched_yield();
    }
    return is_at(rank_, ipc_assigned) ? ipc : staged;
  }

  void gather(Mixing& mixing, const float* from, std::size_t count) {
    ++stage_;
    if (rank_ == 0) {
      copy(part(0, count), from, count);
      const bool all[mechanisms] = {true, true};
      staging_ = {};
      count_ = count;
      has_come_again_ = false;
      moved_ = 0;
      staged_copies_[0] = lead(mixing, all, true);
      return;
    }
    say(rank_, arrived);
    const Mechanism how = await_assignment();
    if (how == slow_) be_late(stream_);
    float* const mine = part(rank_, count);
    copy(how == ipc ? mine : staged_place(mine), from, count);
    marks_.record(stream_);
    sent_ = {from, count, how, stage_};
    if (how == ipc) return say(rank_, ipc_begun);
    while (!marks_.is_reached(rank_)) {
      if (sends_again()) return;
      sched_yield();
    }
    say(rank_, ended);
  }

  /// Whether the leader has asked this rank to send again, and it has done so, now.
  bool sends_again() {
    if (!sent_.from || !directory_.replace(rank_, again, sent_.coded_as(asked), sent_.coded_as(taken))) return false;
    float* const mine = part(rank_, sent_.count);
    place::copy(second_, sent_.how == staged ? mine : staged_place(mine), sent_.from, sent_.count * sizeof(float));
    if (sent_.how == staged)
      second_marks_.record(second_);
    else
      second_.synchronize();
    directory_.store(rank_, again, sent_.coded_as(sent));
    sent_ = {};
    goes_by_second_ = true;
    return true;
  }

  void broadcast(Mixing& mixing, float* to, const float* from, std::size_t count) {
    ++stage_;
    if (rank_ == 0) {
      marks_.record(stream_);
      host_holds_ = false;
      staging_ = {from, count};
      staged_copies_[1] = lead(mixing, used_, false);
      copy_parts(to, from, count);
      stream_.synchronize();
      return;
    }
    say(rank_, arrived);
    const Mechanism how = await_assignment();
    launcher::Stream& stream = goes_by_second_ ? second_ : stream_;
    if (how == ipc)
      marks_.wait(stream, 0);
    else
      directory_.await(0, host_is_ready, stage_);
    place::copy(stream, to, how == ipc ? from : staged_place(from), count * sizeof(float));
    stream.synchronize();
    if (goes_by_second_) stream_.synchronize();
    goes_by_second_ = false;
    sent_ = {};
    say(rank_, ended);
  }

  /// One stage. Returns how many copies were staged.
  int lead(Mixing& mixing, const bool (&may_use)[mechanisms], bool gathers) {
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
        const Mechanism came_by = take(rank, how[at], gathers);
        if (came_by == mechanisms) continue;
        has_ended[came_by] = over[at] = some = true;
        mixing.completed(came_by);
        --missing;
        if (gathers && missing == 1) ask_again(mixing, how, over);
      }
      if (!some) sched_yield();
    }
    std::copy_n(has_ended, static_cast<int>(mechanisms), used_);
    return count_of_staged;
  }
  /// Whether a rank's copy is over, or the one sent again: by which mechanism it came; `mechanisms`: not yet. Whatever
  /// follows in the leader's stream finds it.
  Mechanism take(int rank, Mechanism how, bool gathers) {
    const std::uint64_t told = directory_.load(rank, again);
    if (told == coded(sent)) return take_again(rank, how);
    if (told == coded(taken)) return mechanisms;
    if (!is_past(rank, how == ipc ? ipc_begun : ended) || (how == ipc && !marks_.is_reached(rank))) return mechanisms;
    // The rank may have taken it by now: then it has said nothing of an end, but that it has arrived in the next stage.
    if (told == coded(asked) && !directory_.replace(rank, again, told, coded(withdrawn))) return mechanisms;
    if (how == ipc)
      marks_.wait(stream_, rank);
    else if (gathers)
      copy(part(rank, count_), staged_place(part(rank, count_)), count_);
    return how;
  }
  Mechanism take_again(int rank, Mechanism slow) {
    if (slow == staged) {
      if (!second_marks_.is_reached(rank)) return mechanisms;
      second_marks_.wait(stream_, rank);
    } else {
      copy(spare(), staged_place(part(rank, count_)), count_);
      moved_ = rank;
    }
    has_come_again_ = true;
    return other_than(slow);
  }
  /// One copy is missing. It may not have begun yet: then its rank is not slow, but late.
  void ask_again(const Mixing& mixing, const std::vector<Mechanism>& how, const std::vector<bool>& over) {
    for (int rank = 1; rank < ranks_; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (over[at] || how[at] == mechanisms || !mixing.sends_again(how[at])) continue;
      directory_.store(rank, again, coded(asked));
    }
  }
  /// Once in a broadcast.
  void stage_on_host() {
    if (staging_.count == 0 || host_holds_) return;
    copy_parts(staged_place(staging_.from), staging_.from, staging_.count);
    stream_.synchronize();
    directory_.store(0, host_is_ready, stage_);
    host_holds_ = true;
    staging_ = {};
  }
  /// What was gathered, by the leader, from the spare part where one is there.
  void copy_parts(float* to, const float* from, std::size_t count) {
    if (moved_ == 0) return copy(to, from, count);
    const auto before = static_cast<std::size_t>(part(moved_, count_) - from), behind = before + count_;
    copy(to, from, before);
    copy(to + before, spare(), count_);
    if (behind < count) copy(to + behind, from + behind, count - behind);
  }

  launcher::Stream& stream_;
  const int rank_, ranks_;
  const std::size_t first_, parts_;  ///< the node's first part; those of all nodes
  const std::size_t most_;           ///< elements of a part
  const DeviceMemory device_;
  const HostMemory host_;
  const Directory directory_;
  Marks marks_, second_marks_;
  launcher::Stream second_;
  Network network_;
  Mechanism slow_ = mechanisms;
  std::uint64_t stage_ = 0;
  struct {
    const float* from = nullptr;
    std::size_t count = 0;
    Mechanism how = mechanisms;
    std::uint64_t stage = 0;
    std::uint64_t coded_as(State what) const { return stage * states + what; }
  } sent_;  ///< what this rank may have to send again
  bool goes_by_second_ = false;
  std::size_t count_ = 0;  ///< of a part of this call; this and what follows is the leader's
  int moved_ = 0;          ///< the rank whose part is the spare one; 0: none
  bool has_come_again_ = false;
  struct {
    const float* from = nullptr;
    std::size_t count = 0;
  } staging_;  ///< what a broadcast may have to stage
  bool host_holds_ = false;
  bool used_[mechanisms] = {true, true};
  int staged_copies_[2] = {};
};

}  // namespace classic
