// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rma.h"

/// What concerns all ranks of a process, or of the domain: a put that all ranks of the target's process are told of,
/// broadcast and reduction. All threads of the team call, with the same arguments.
///
/// **put_notify_all.** The data go straight into the window, never into a lane: what lies in a lane is in the window
/// when its reader has moved it, and the others do not wait for that. Then each rank gets an entry of its own, as of a
/// put straight into the window, and acquires it as such. Why each sees the data: all threads have met since they
/// stored them; each thread that writes entries fences behind that meeting, as far as the target's device, before the
/// first of its entries; a rank that has seen both lines of an entry acquires the second one, and its team meets. No
/// order between the entries is needed. To another node the data go first, and notifications behind them as messages of
/// the same link: it hands out what a message says when all before it is done, so the data are in the window by then. A
/// flush asks behind all of them. (In lanes of the same rank the entry is behind those of earlier puts, so it tells of
/// these, too.)
///
/// **Collectives.** Each process has a leader: the root, or else its first rank. Leaders exchange by notified puts,
/// along a binomial tree of the processes, and meet the others of their process in barriers of MPIX_DEV_DEVICE, where
/// these read each other's parts themselves.
///
/// | step of bcast               | who             | why it may                                              |
/// |-----------------------------|-----------------|---------------------------------------------------------|
/// | barrier, if parts share bytes with the leader's | the process | the next step lets those be written  |
/// | tells its parent            | leader but root | its part may be written from here on                    |
/// | waits for its parent's put  | leader but root |                                                         |
/// | puts to each child          | leader          | when that has told it: it has called, and no sooner     |
/// | barrier                     | the process     | the leader's part is whole, and all have called         |
/// | copies into its own part    | all others      | by itself, in its own call                              |
/// | barrier, if any copied      | the process     | the leader's part may be written again: it returns      |
///
/// | step of reduce              | who             | why it may                                              |
/// |-----------------------------|-----------------|---------------------------------------------------------|
/// | tells its first child       | leader          | the second half of its scratch memory is free: it has called |
/// | barrier                     | the process     | all parts are whole                                     |
/// | combines elements of its own, of all parts of the process, into the leader's scratch memory, or root's part | all | nobody else reads or writes these elements there |
/// | barrier                     | the process     | all are combined; the parts are read no more: who does not lead returns |
/// | waits for a child's put, combines it, tells the next child | leader | one at a time is in that memory   |
/// | puts to its parent          | leader but root | when that has told it                                   |
///
/// So no rank's memory is written before it has called, nor after it has returned, and calls may follow each other with
/// no barrier between: a put returns when its source may be written. Of one call there is at most one
/// notification from one leader to another; all calls come in the same order at all ranks, and each notification is
/// waited for by its source: so the n-th of a source, window and tag is taken by the call that it was sent in, however
/// far ahead its sender is.
namespace mpix {
namespace dev {

/// A process that has ranks: which of those of all nodes, in the order of ranks, and which ranks.
struct Process {
  std::uint32_t index, first, end;
};

MPIX_DEV_CALL Process process_of(const Ctx& c, std::uint32_t rank) {
  const Header& header = header_of(c.p.segment);
  const std::uint32_t* const first_ranks = header.first_ranks;
  std::uint32_t low = 0, high = static_cast<std::uint32_t>(header.processes);
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (first_ranks[middle] <= rank)
      low = middle;
    else
      high = middle;
  }
  return Process{low, first_ranks[low], first_ranks[low + 1]};
}

/// The team, which has met since it wrote what is told of: an entry for each rank of a process of this node. The first
/// warp writes one by each of its threads. One that finds a full lane has lines there, and nobody behind it gets on; so
/// all that have any write as soon as they may, whoever else waits.
MPIX_DEV_CALL bool tell_all(Ctx& c, const Process& process, std::uint64_t what, std::uint64_t how) {
  const Team team = team_of(c);
  const Workers warp = first_warp_of(team);
  const bool in_warp = in_first_warp(team), here = is_here(c, process.first);
  if (in_warp) {
    if (here)
      fence_on_device();
    else
      fence_stores();
  }
  if (team.index == 0) {
    if (!here) c.unfenced = 0;
    for (Taken& taken : c.taken) taken.target = -1;  // lines are taken behind its back
  }
  MPIX_NO_UNROLL
  for (std::uint32_t begin = process.first; begin < process.end; begin += warp.size) {
    const std::uint32_t rank = begin + team.index;
    bool tells = in_warp && rank < process.end;
    const std::uint64_t at = tells ? fetch_add_on_device(sent_to(c, rank), entry_lines) : 0;
    Ballot left = 0;
    const auto write = [&] {
      if (tells && at + entry_lines <= load_before_stores(room_of(c, c.p.process, rank))) {
        write_entry(lane_of(c, c.p.inboxes[rank], c.p.process) + index_of(c, at), what, how, lap_of(c, at));
        ring_rank(c, c.p.inboxes[rank]);
        tells = false;
      }
      left = ballot(warp, tells);
      if (team.index == 0) c.value = left == 0 ? process.end : begin + first_of(left);
    };
    if (in_warp) write();
    sync_team(team);
    const bool all = c.value == process.end;
    sync_team(team);
    if (all) continue;
    if (team.index == 0)
      note_query(c, static_cast<int>(window_of(what)), static_cast<int>(begin), static_cast<int>(tag_of(what)));
    if (!until(
            c, DevCall::put_notify_all, Sleep::for_room, [&] { return left == 0; },
            [&] {
              if (in_warp) write();
              sync_team(team);
              const auto slow = static_cast<std::uint32_t>(c.value);
              if (slow < process.end) read_for(c, slow);
            }))
      return false;
    sync_team(team);
  }
  return true;
}

MPIX_DEV_CALL Result put_notify_all(Ctx& c, int window, int target, std::size_t displacement, std::size_t bytes,
                                    const void* local, int tag) {
  constexpr DevCall call = DevCall::put_notify_all;
  const Team team = team_of(c);
  sync_team(team);
  const Result wrong = find_target(c, call, window, target, displacement, bytes, local == nullptr, tag);
  if (wrong != Result::ok) return wrong;
  const auto to = static_cast<std::uint32_t>(target);
  const Process process = process_of(c, to);
  if (is_far(c, to)) {
    Result result = put_far(c, call, window, target, displacement, bytes, local, tag);
    for (std::uint32_t rank = process.first; result == Result::ok && rank < process.end; ++rank)
      if (rank != to) result = put_far(c, call, window, static_cast<int>(rank), 0, 0, nullptr, tag, bytes);
    return result;
  }
  copy_some(team, aim_of(c, window, target).base + displacement, local, bytes);
  sync_team(team);
  const std::uint64_t what = what_of(static_cast<std::uint32_t>(tag), c.rank, static_cast<std::uint32_t>(window));
  const bool told = tell_all(c, process, what, how_of(direct, bytes));
  sync_team(team);
  return told ? Result::ok : Result::synchronization;
}

// ---- collectives -------------------------------------------------------------------------------------

MPIX_DEV_FN char* place_in_part(const Ctx& c, int window, std::uint32_t rank, std::size_t displacement) {
  return window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), rank)->base + displacement;
}

/// Bytes of each part that a collective works on.
struct Extent {
  std::size_t displacement, bytes;
  MPIX_DEV_METHOD bool fits(std::uint64_t part_bytes) const {
    return displacement <= part_bytes && bytes <= part_bytes - displacement;
  }
};

/// All ranks find out the same: each looks at the parts of all.
MPIX_DEV_CALL Result check_parts(Ctx& c, DevCall call, int window, int root, int tag, const Extent& data,
                                 const Extent& scratch) {
  const Team team = team_of(c);
  Result wrong = c.broken;
  if (wrong != Result::ok) return wrong;
  if (root < 0 || static_cast<std::uint32_t>(root) >= c.p.ranks) {
    wrong = Result::root;
  } else if (window < 0 || window >= static_cast<int>(most_windows)) {
    wrong = Result::window;
  } else if (tag < 0) {
    wrong = Result::tag;
  } else {
    if (team.index == 0) c.value = c.found.at = 0;
    sync_team(team);
    for (std::uint32_t rank = team.index; rank < c.p.ranks; rank += team.size) {
      const std::uint64_t present = window_entry(c, c.p.segment, static_cast<std::uint32_t>(window), rank)->present;
      if (present == 0)
        c.value = 1;
      else if (!data.fits(present - 1) || !scratch.fits(present - 1))
        c.found.at = 1;
    }
    sync_team(team);
    wrong = c.value != 0 ? Result::window : c.found.at != 0 ? Result::range : Result::ok;
    sync_team(team);
  }
  if (wrong != Result::ok)
    (void)fail(c, call, wrong, window, root,
               wrong == Result::tag ? std::int64_t{tag} : static_cast<std::int64_t>(data.displacement),
               static_cast<std::int64_t>(data.bytes));
  return wrong;
}

/// The binomial tree of the processes, as its root's process is number 0: the parent of n lacks its lowest bit, and its
/// children have one more bit each, below that.
struct Tree {
  std::uint32_t processes, root_process, root;
  std::uint32_t number;  ///< of this process
  std::uint32_t leader;  ///< of this process
  Process own;

  MPIX_DEV_METHOD Tree(const Ctx& c, int root_rank)
      : processes(static_cast<std::uint32_t>(header_of(c.p.segment).processes)),
        root_process(process_of(c, static_cast<std::uint32_t>(root_rank)).index),
        root(static_cast<std::uint32_t>(root_rank)),
        own(process_of(c, c.rank)) {
    number = own.index >= root_process ? own.index - root_process : own.index + processes - root_process;
    leader = number == 0 ? root : own.first;
  }
  MPIX_DEV_METHOD std::uint32_t ranks_here() const { return own.end - own.first; }
  /// Children have these bits; the root's process all.
  MPIX_DEV_METHOD std::uint32_t bits_below() const { return number == 0 ? 1u << 31 : number & (0u - number); }
  MPIX_DEV_METHOD bool has_child(std::uint32_t bit) const { return bit < bits_below() && bit < processes - number; }
  MPIX_DEV_METHOD int leader_of(const Ctx& c, std::uint32_t of) const {
    const std::uint64_t index = (std::uint64_t{of} + root_process) % processes;
    return static_cast<int>(of == 0 ? root : header_of(c.p.segment).first_ranks[index]);
  }
  MPIX_DEV_METHOD int parent(const Ctx& c) const { return leader_of(c, number & (number - 1)); }
};

/// How the parts of this process lie to that of its leader.
struct Overlap {
  bool shares;   ///< bytes, with some other
  bool differs;  ///< from some other
};
MPIX_DEV_CALL Overlap overlap_of(Ctx& c, const Tree& tree, int window, const Extent& data) {
  if (data.bytes == 0 || tree.ranks_here() == 1) return Overlap{false, false};
  const Team team = team_of(c);
  const auto place = [&](std::uint32_t rank) {
    return reinterpret_cast<std::uintptr_t>(place_in_part(c, window, rank, data.displacement));
  };
  const std::uintptr_t leaders = place(tree.leader);
  sync_team(team);
  if (team.index == 0) c.value = c.found.at = 0;
  sync_team(team);
  for (std::uint32_t rank = tree.own.first + team.index; rank < tree.own.end; rank += team.size) {
    if (rank == tree.leader) continue;
    const std::uintptr_t others = place(rank);
    if (others != leaders) c.found.at = 1;
    if (others - leaders < data.bytes || leaders - others < data.bytes) c.value = 1;
  }
  sync_team(team);
  const Overlap overlap{c.value != 0, c.found.at != 0};
  sync_team(team);
  return overlap;
}

/// Of a process.
MPIX_DEV_CALL Result meet(Ctx& c, const Tree& tree) {
  if (tree.ranks_here() > 1) return barrier(c, device);
  sync_team(c);
  return Result::ok;
}

MPIX_DEV_CALL Result wait_for_leader(Ctx& c, int window, int leader, int tag) {
  const Result result = wait(c, window, leader, tag, 1, nullptr);
  // What it waits for comes all the same, and would be taken for that of the next call: so there is none.
  if (result == Result::memory) {
    if (is_first(c)) give_up(c, Result::synchronization);
    sync_team(c);
  }
  return result;
}
MPIX_DEV_CALL Result put_to_leader(Ctx& c, int window, int leader, std::size_t displacement, std::size_t bytes,
                                   const char* from, int tag) {
  return put_notify(c, window, leader, displacement, bytes, from, tag);
}

/// By a leader.
MPIX_DEV_CALL Result pass_on(Ctx& c, const Tree& tree, int window, const Extent& data, int tag) {
  Result result = Result::ok;
  if (tree.number != 0) {
    const int parent = tree.parent(c);
    result = notify(c, window, parent, tag);
    if (result == Result::ok) result = wait_for_leader(c, window, parent, tag);
  }
  // The child with the most below it first.
  std::uint32_t bit = 1;
  while (bit < tree.processes) bit *= 2;
  for (; result == Result::ok && bit > 0; bit /= 2) {
    if (!tree.has_child(bit)) continue;
    const int child = tree.leader_of(c, tree.number + bit);
    result = wait_for_leader(c, window, child, tag);
    if (result == Result::ok)
      result = put_to_leader(c, window, child, data.displacement, data.bytes,
                             place_in_part(c, window, c.rank, data.displacement), tag);
  }
  return result;
}

MPIX_DEV_CALL Result bcast(Ctx& c, int window, int root, std::size_t displacement, std::size_t bytes, int tag) {
  sync_team(c);
  const Extent data{displacement, bytes};
  const Result wrong = check_parts(c, DevCall::bcast, window, root, tag, data, Extent{0, 0});
  if (wrong != Result::ok) return wrong;
  const Tree tree(c, root);
  const bool leads = c.rank == tree.leader;
  const Overlap overlap = overlap_of(c, tree, window, data);
  Result result = overlap.shares ? meet(c, tree) : Result::ok;
  if (result == Result::ok && leads) result = pass_on(c, tree, window, data, tag);
  if (result == Result::ok) result = meet(c, tree);
  if (result != Result::ok || !overlap.differs) return result;
  if (!leads)
    copy_some(team_of(c), place_in_part(c, window, c.rank, displacement),
              place_in_part(c, window, tree.leader, displacement), bytes);
  return meet(c, tree);
}

enum class Combine : std::uint32_t { sum, max, min, none };

/// Sums of integers wrap around.
template <class T>
MPIX_DEV_FN T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}
template <class T>
MPIX_DEV_FN T combined(Combine how, T a, T b) {
  return how == Combine::sum ? sum_of(a, b) : how == Combine::max ? (a < b ? b : a) : (b < a ? b : a);
}

/// Elements may lie anywhere.
MPIX_DEV_FN void copy_odd(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
}
template <class T>
MPIX_DEV_FN T load_element(const char* from, std::size_t i) {
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) == 0) return load_once(reinterpret_cast<const T*>(from) + i);
  T value;
  copy_odd(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
MPIX_DEV_FN void store_element(char* to, std::size_t i, T value) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0)
    reinterpret_cast<T*>(to)[i] = value;
  else
    copy_odd(to + i * sizeof(T), &value, sizeof(T));
}

/// A rank's share of the elements: all parts of its process, in the order of their ranks. So many at once, as each
/// takes a trip to memory.
constexpr std::uint32_t parts_at_once = MPIX_ON_DEVICE ? 8 : 1;
constexpr std::size_t least_share = 32;

template <class T>
MPIX_DEV_CALL void combine_parts(const Ctx& c, const Process& process, int window, std::size_t displacement,
                                 std::size_t count, Combine how, char* to) {
  const Team team = team_of(c);
  const std::size_t ranks = process.end - process.first, number = c.rank - process.first;
  const std::size_t share = ((count + ranks - 1) / ranks + least_share - 1) / least_share * least_share;
  const std::size_t begin = number * share, end = begin + share < count ? begin + share : count;
  for (std::size_t i = begin + team.index; i < end; i += team.size) {
    T all = load_element<T>(place_in_part(c, window, process.first, displacement), i);
    MPIX_NO_UNROLL
    for (std::uint32_t rank = process.first + 1; rank < process.end; rank += parts_at_once) {
      T value[parts_at_once];
      for (std::uint32_t k = 0; k < parts_at_once; ++k)
        if (rank + k < process.end) value[k] = load_element<T>(place_in_part(c, window, rank + k, displacement), i);
      for (std::uint32_t k = 0; k < parts_at_once; ++k)
        if (rank + k < process.end) all = combined(how, all, value[k]);
    }
    store_element(to, i, all);
  }
}

template <class T>
MPIX_DEV_CALL void combine_two(const Ctx& c, char* to, const char* other, std::size_t count, Combine how) {
  const Team team = team_of(c);
  for (std::size_t i = team.index; i < count; i += team.size)
    store_element(to, i, combined(how, load_element<T>(to, i), load_element<T>(other, i)));
}

/// Of `count` elements; the scratch memory is for as many of this process, and as many of another one.
template <class T>
MPIX_DEV_CALL Result reduce(Ctx& c, int window, int root, std::size_t displacement, std::size_t count, Combine how,
                            std::size_t scratch, int tag) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "integers of 32 or 64 bits, float, double");
  sync_team(c);
  // What does not fit into 44 bits is outside of any window.
  const std::size_t bytes = count < most_window_bytes / 16 ? count * sizeof(T) : most_window_bytes;
  const Result wrong =
      check_parts(c, DevCall::reduce, window, root, tag, Extent{displacement, bytes}, Extent{scratch, 2 * bytes});
  if (wrong != Result::ok) return wrong;
  const bool overlaps = bytes > 0 && displacement < scratch + 2 * bytes && scratch < displacement + bytes;
  if (how == Combine::none || overlaps)
    return fail(c, DevCall::reduce, overlaps ? Result::buffer : Result::operation, window, root,
                static_cast<std::int64_t>(displacement), static_cast<std::int64_t>(bytes));
  const Tree tree(c, root);
  const bool leads = c.rank == tree.leader;
  const std::size_t own_at = tree.number == 0 ? displacement : scratch;
  char* const own = place_in_part(c, window, tree.leader, own_at);
  std::uint32_t bit = 1;
  Result result = Result::ok;
  if (leads && tree.has_child(bit)) result = notify(c, window, tree.leader_of(c, tree.number + bit), tag);
  if (result == Result::ok) result = meet(c, tree);
  if (result != Result::ok) return result;
  combine_parts<T>(c, tree.own, window, displacement, count, how, own);
  result = meet(c, tree);
  if (!leads) return result;
  for (; result == Result::ok && tree.has_child(bit); bit *= 2) {
    result = wait_for_leader(c, window, tree.leader_of(c, tree.number + bit), tag);
    if (result != Result::ok) break;
    combine_two<T>(c, own, place_in_part(c, window, c.rank, scratch + bytes), count, how);
    sync_team(c);
    if (tree.has_child(2 * bit)) result = notify(c, window, tree.leader_of(c, tree.number + 2 * bit), tag);
  }
  if (result != Result::ok || tree.number == 0) return result;
  result = wait_for_leader(c, window, tree.parent(c), tag);
  if (result != Result::ok) return result;
  return put_to_leader(c, window, tree.parent(c), scratch + bytes, bytes, own, tag);
}

}  // namespace dev
}  // namespace mpix
