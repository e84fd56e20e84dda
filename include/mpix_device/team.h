// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "far.h"
#include "layout.h"

/// The threads of a rank: a block, or one warp of it; on the host one thread. And what a rank keeps while its kernel
/// runs.
namespace mpix {
namespace dev {

/// An entry that lies at the front of a lane.
struct Found {
  std::uint32_t process;
  std::uint32_t lines;
  std::uint64_t at;  ///< its first line
  Notification notification;
};

struct Status {
  std::int32_t source, tag, window;
  std::uint32_t kind;
  std::uint64_t bytes;
};

/// What the first warp of a team has come to, for the rest of it.
enum class Step : std::uint32_t {
  over,
  move,       ///< the data of `found` are to be moved, by all
  set_aside,  ///< of a wait: `found` is not asked for
  unusual,    ///< likewise: not what take_as_usual() knows
  none,       ///< likewise: it was not asked
};

/// What a put needs to know of a target, and of its part of a window: of some that it was last concerned with, as every
/// look into the tables takes as long as a hundred instructions.
struct Aim {
  std::int32_t window, target;
  char* base;
  std::uint64_t present;  ///< bytes + 1 of the target's part; 0: of no window
  Line* lane;
  std::uint64_t* sent;
  std::uint64_t* room;
  std::uint64_t room_seen;  ///< lines before this one may be written
  bool is_here;             ///< the target is a rank of this process
  bool is_noted;            ///< among the unflushed
};
constexpr std::uint32_t aims = 4;  ///< and one for what is concerned with no window

/// Of a rank that is alone in its process: lines that it has taken of a lane, as in `sent`.
struct Taken {
  std::int32_t target;
  std::uint64_t lines;
};

constexpr std::uint32_t most_fronts = 32;

/// This rank's own part of a window.
struct OwnPart {
  std::int32_t window;  ///< negative: none
  char* base;
  std::uint64_t present;
};
constexpr std::uint32_t own_parts = 8;

/// Lines of a lane that were there before the last fence: it holds for all notifications among them.
struct Fenced {
  std::uint32_t process;
  std::uint64_t end;
};
constexpr std::uint32_t fenced_lanes = 4;

/// A lane that is still to be left, up to `head`.
struct alignas(16) Owed {
  std::uint32_t process;
  bool any;
  std::uint64_t head;
};

/// Targets that may not have taken yet what was sent to them in lines.
constexpr std::uint32_t most_unflushed = 8;

}  // namespace dev
}  // namespace mpix

/// One for each rank, in memory that its team shares: on a GPU `__shared__`. Nothing in it is for programs.
struct MPIX_Dev_ctx {
  MPIX_Dev_param p;
  mpix::dev::Places at;
  mpix::dev::Inbox* inbox;
  std::uint32_t rank;
  std::uint32_t team;  ///< MPIX_DEV_BLOCK, MPIX_DEV_WARP
  mpix::dev::Result broken;
  std::uint32_t unfenced;  ///< stores into windows have no fence behind them yet
  std::uint32_t has_put;   ///< without a notification, since all ranks met: targets have to fence
  std::uint64_t waits;     ///< calls that waited, with those of earlier launches
  bool holds_inbox;        ///< by its lock

  // Of the call:
  mpix::dev::Inbox* reading;  ///< the rank's own inbox, or that of one that runs no kernel
  mpix::dev::Reading state;   ///< of that inbox
  std::uint32_t reading_of;
  mpix::dev::DevCall call;
  mpix::dev::Query query;
  std::uint32_t needs, total;
  bool asks;   ///< for notifications; else they are only set aside
  bool stays;  ///< until it has them
  bool wants_status;
  mpix::dev::Step step;
  mpix::dev::Result result;
  mpix::dev::Found found;
  char* to;  ///< where its data go, of a wait
  mpix::dev::Status status;
  std::uint64_t value;  ///< from one thread for all
  bool goes_on;         ///< likewise

  mpix::dev::Aim aims[mpix::dev::aims + 1];
  mpix::dev::Taken taken[mpix::dev::aims];
  mpix::dev::OwnPart own[mpix::dev::own_parts];
  mpix::dev::OwnPart last_part;                 ///< where data in lines last went
  std::uint64_t heads[mpix::dev::most_fronts];  ///< of the lanes, as in the inbox, where these are few
  mpix::dev::Fenced fenced[mpix::dev::fenced_lanes];
  mpix::dev::Owed owed;
  mpix::Line* lanes;           ///< the rank's own
  std::uint32_t front_shift;   ///< see Front; 0: there are too many lanes for that, or the domain is broken
  std::uint32_t left_process;  ///< whose lane was last read,
  std::uint64_t* left_room;    ///< and where its process is told

  // With ranks of other nodes (far.h):
  std::uint64_t far_place, far_number;     ///< from the first thread for all
  std::uint64_t far_freed, far_taken;      ///< seen
  std::uint64_t far_replies, far_flushes;  ///< awaited so far
  std::uint32_t far_unflushed;
  std::uint32_t far_put;  ///< without a notification, since all ranks met

  std::uint32_t unflushed_count;  ///< more than there is room for: any target
  std::uint32_t unflushed[mpix::dev::most_unflushed];
};

namespace mpix {
namespace dev {

using Ctx = MPIX_Dev_ctx;
constexpr std::uint32_t block_team = 0, warp_team = 1;

/// A thread's view of its team. Each call makes it once, as the context lies in memory.
struct Team : Workers {
  bool is_block;
};

#if MPIX_ON_DEVICE
MPIX_DEV_FN std::uint32_t thread_of_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
MPIX_DEV_FN std::uint32_t block_size() { return blockDim.x * blockDim.y * blockDim.z; }
#if defined(__HIP_DEVICE_COMPILE__)
MPIX_DEV_FN std::uint32_t warp_width() { return static_cast<std::uint32_t>(warpSize); }
using Ballot = std::uint64_t;
#else
MPIX_DEV_FN std::uint32_t warp_width() { return 32; }
using Ballot = std::uint32_t;
#endif

MPIX_DEV_FN Team team_of(const Ctx& c) {
  return c.team == block_team ? Team{{thread_of_block(), block_size()}, true}
                              : Team{{thread_of_block() % warp_width(), warp_width()}, false};
}
/// The first warp of a team looks at lanes and pending notifications; it may be short.
MPIX_DEV_FN Workers first_warp_of(const Team& team) {
  return Workers{team.index, team.size < warp_width() ? team.size : warp_width()};
}
#if defined(__HIP_DEVICE_COMPILE__)
MPIX_DEV_FN void sync_warp(const Workers&) {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
  __builtin_amdgcn_wave_barrier();
}
MPIX_DEV_FN Ballot ballot(const Workers&, bool holds) { return __ballot(holds); }
MPIX_DEV_FN std::uint32_t first_of(Ballot who) {
  return static_cast<std::uint32_t>(__ffsll(static_cast<unsigned long long>(who))) - 1;
}
MPIX_DEV_FN std::uint32_t count_of(Ballot who) { return static_cast<std::uint32_t>(__popcll(who)); }
MPIX_DEV_FN void doze(std::uint32_t looks) {
  if (looks > 64) __builtin_amdgcn_s_sleep(1);
}
#else
/// All, as threads that a short block lacks count as those that have ended. A mask that is not known to the compiler
/// takes some hundred instructions.
constexpr unsigned warp_mask = ~0u;
MPIX_DEV_FN void sync_warp(const Workers&) { __syncwarp(warp_mask); }
MPIX_DEV_FN Ballot ballot(const Workers&, bool holds) { return __ballot_sync(warp_mask, holds); }
MPIX_DEV_FN std::uint32_t first_of(Ballot who) { return static_cast<std::uint32_t>(__ffs(static_cast<int>(who))) - 1; }
MPIX_DEV_FN std::uint32_t count_of(Ballot who) { return static_cast<std::uint32_t>(__popc(who)); }
MPIX_DEV_FN void doze(std::uint32_t looks) {
  if (looks > 32) __nanosleep(looks > 4096 ? 200 : 40);
}
#endif
MPIX_DEV_FN void sync_team(const Team& team) {
  if (team.is_block)
    __syncthreads();
  else
    sync_warp(first_warp_of(team));
}
/// They meet: what the first thread says; the others, but for those of the first warp, say yes.
MPIX_DEV_FN bool ask_first(Ctx& c, const Team& team, bool says) {
#if defined(__CUDA_ARCH__)
  if (team.is_block) return __syncthreads_and(says) != 0;
#endif
  if (team.index == 0) c.value = says;
  sync_team(team);
  return c.value != 0;
}
/// What one thread of the first warp has.
MPIX_DEV_FN std::uint32_t from_thread(const Workers& warp, std::uint32_t value, std::uint32_t thread) {
#if defined(__HIP_DEVICE_COMPILE__)
  (void)warp;
  return static_cast<std::uint32_t>(__shfl(static_cast<int>(value), static_cast<int>(thread)));
#else
  (void)warp;
  return __shfl_sync(warp_mask, value, static_cast<int>(thread));
#endif
}
#else
MPIX_DEV_FN std::uint32_t warp_width() { return 1; }
using Ballot = std::uint32_t;
MPIX_DEV_FN Team team_of(const Ctx&) { return Team{{0, 1}, true}; }
MPIX_DEV_FN Workers first_warp_of(const Team&) { return Workers{0, 1}; }
MPIX_DEV_FN void sync_warp(const Workers&) {}
MPIX_DEV_FN Ballot ballot(const Workers&, bool holds) { return holds ? 1u : 0u; }
MPIX_DEV_FN std::uint32_t first_of(Ballot who) { return who ? 0u : ~0u; }
MPIX_DEV_FN std::uint32_t count_of(Ballot who) { return who; }
MPIX_DEV_FN void doze(std::uint32_t) {}
MPIX_DEV_FN void sync_team(const Team&) {}
MPIX_DEV_FN std::uint32_t from_thread(const Workers&, std::uint32_t value, std::uint32_t) { return value; }
#endif

MPIX_DEV_FN std::uint64_t from_thread(const Workers& warp, std::uint64_t value, std::uint32_t thread) {
  return two_words(from_thread(warp, static_cast<std::uint32_t>(value), thread),
                   from_thread(warp, static_cast<std::uint32_t>(value >> 32), thread));
}

MPIX_DEV_FN void sync_team(const Ctx& c) { sync_team(team_of(c)); }
MPIX_DEV_FN bool is_first(const Ctx& c) { return team_of(c).index == 0; }
MPIX_DEV_FN bool in_first_warp(const Team& team) { return team.index < first_warp_of(team).size; }

// What lies where.
MPIX_DEV_FN std::uint64_t* sent_to(const Ctx& c, std::uint32_t target) {
  return reinterpret_cast<std::uint64_t*>(c.p.segment + c.at.sent) + target;
}
MPIX_DEV_FN std::uint64_t* room_of(const Ctx& c, std::uint32_t process, std::uint32_t target) {
  return reinterpret_cast<std::uint64_t*>((process == c.p.process ? c.p.segment : c.p.segments[process]) + c.at.room) +
         target;
}
MPIX_DEV_FN WindowEntry* window_entry(const Ctx& c, char* segment, std::uint32_t window, std::uint32_t rank) {
  return reinterpret_cast<WindowEntry*>(segment + c.at.windows) + (std::uint64_t{window} * c.p.ranks + rank);
}
MPIX_DEV_FN WindowEntry* attached_entry(const Ctx& c, char* segment, std::uint32_t attachment, std::uint32_t process) {
  return reinterpret_cast<WindowEntry*>(segment + c.at.attached) +
         (std::uint64_t{attachment} * c.p.processes + process);
}
MPIX_DEV_FN std::uint64_t* there_of(const Ctx& c, char* segment, Comm comm, std::uint32_t process) {
  return reinterpret_cast<std::uint64_t*>(segment + c.at.there) + (std::uint64_t{comm} * c.p.processes + process);
}
MPIX_DEV_FN std::uint64_t* window_call_of(const Ctx& c, char* segment, Comm comm, std::uint64_t barrier,
                                          std::uint32_t rank) {
  return reinterpret_cast<std::uint64_t*>(segment + c.at.window_calls) +
         window_call_index(comm, barrier, rank, c.p.ranks);
}
MPIX_DEV_FN bool is_far(const Ctx& c, std::uint32_t rank) {
  return c.p.far_words != nullptr && c.p.inboxes[rank] == nullptr;
}
MPIX_DEV_FN FarRank& far_rank(const Ctx& c) { return c.p.far_ranks[c.rank - c.p.first_rank]; }
MPIX_DEV_FN bool is_here(const Ctx& c, std::uint32_t rank) { return rank - c.p.first_rank < c.p.ranks_here; }
MPIX_DEV_FN Header& header_of(char* segment) { return *reinterpret_cast<Header*>(segment); }
MPIX_DEV_FN std::uint64_t* heads_of(Inbox* inbox) { return reinterpret_cast<std::uint64_t*>(inbox + 1); }
MPIX_DEV_FN Notification* pending_of(const Ctx& c, Inbox* inbox) {
  return reinterpret_cast<Notification*>(reinterpret_cast<char*>(inbox) + pending_at(c.p.processes));
}
MPIX_DEV_FN Line* lane_of(const Ctx& c, char* inbox, std::uint32_t process) {
  return reinterpret_cast<Line*>(inbox + c.p.lanes_at) + std::uint64_t{process} * c.p.lane_lines;
}
MPIX_DEV_FN std::uint32_t lap_of(const Ctx& c, std::uint64_t line) { return lap_of_line(line, c.p.lane_shift); }
MPIX_DEV_FN std::uint64_t index_of(const Ctx& c, std::uint64_t line) { return line & (c.p.lane_lines - 1); }

MPIX_DEV_FN void ring_rank(const Ctx& c, char* inbox) {
#if !MPIX_ON_DEVICE
  c.p.hooks->ring(inbox);  // an inbox begins with the bell
#else
  (void)c, (void)inbox;
#endif
}
MPIX_DEV_FN void ring_process(const Ctx& c, char* segment) {
#if !MPIX_ON_DEVICE
  c.p.hooks->ring(segment);
#else
  (void)c, (void)segment;
#endif
}

/// A wait of one call, as its thread or its first warp sees it.
struct Wait {
  std::uint32_t looks = 0;
  bool noted = false;
  std::uint32_t needs = 0;  ///< as noted
};

/// How often a GPU's wait looks whether the domain is broken: that is a word of the host.
constexpr std::uint32_t looks_between_notes = 1u << 14;

/// One thread.
MPIX_DEV_CALL void note_waiting(const Ctx& c, std::uint32_t needs) {
  write_waiting(c.p.notes[c.rank - c.p.first_rank], Waiting{c.call, c.query, needs, c.total}, c.waits);
}

/// One thread: what has come meanwhile is no longer waited for.
MPIX_DEV_FN void note_needs(const Ctx& c, std::uint32_t needs) {
  store_after_loads(&c.p.notes[c.rank - c.p.first_rank].words[3], two_words(needs, c.total));
}

/// A launch that waits for its turn may have written over it, where both had found none.
MPIX_DEV_FN bool is_note_gone(const Ctx& c) {
  return load_relaxed(&c.p.notes[c.rank - c.p.first_rank].waits) != c.waits;
}

/// After a look in vain, by one thread, or by all of the first warp. False: the domain is broken.
MPIX_DEV_FN bool look_again(const Ctx& c, Wait& wait, const Workers& warp, std::uint32_t needs, Sleep sleep) {
  ++wait.looks;
#if MPIX_ON_DEVICE
  (void)sleep;
  doze(wait.looks);
  if (wait.looks % looks_between_notes != 0) return true;
  bool released = false;
  if (warp.index == 0) {
    released = load_relaxed(c.p.released) != 0;
    if (!released && (!wait.noted || is_note_gone(c))) note_waiting(c, needs);
    if (!released && wait.noted && wait.needs != needs) note_needs(c, needs);
  }
  wait.noted = true;
  wait.needs = needs;
  return ballot(warp, released) == 0;
#else
  (void)warp;
  if (!wait.noted || is_note_gone(c)) note_waiting(c, needs);
  if (wait.noted && wait.needs != needs) note_needs(c, needs);
  wait.noted = true;
  wait.needs = needs;
  return c.p.hooks->pause(c.p.waiter, sleep);
#endif
}
/// The counterpart, when it has ended.
MPIX_DEV_FN void end_wait(const Ctx& c, const Wait& wait, const Workers& warp) {
  if (wait.looks == 0) return;
#if !MPIX_ON_DEVICE
  c.p.hooks->refresh(c.p.waiter);
#endif
  if (wait.noted && warp.index == 0) store_after_loads(&c.p.notes[c.rank - c.p.first_rank].waits, 0);
}

/// Words of data, the usual ones at once; those that do not lie at multiples of 8, and short ones, by calls: the code
/// that takes them apart is large, and would stand in the way of the rest.
MPIX_DEV_CALL std::uint64_t load_odd_word(const char* from, std::uint32_t i, std::uint32_t bytes) {
#if MPIX_ON_DEVICE
  // It may be memory of the block as well, which load_word does not read.
  std::uint64_t word = 0;
  for (std::uint32_t b = 0; b < 8 && 8 * i + b < bytes; ++b)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(from[8 * i + b])) << (8 * b);
  return word;
#else
  return load_word(from, i, bytes);
#endif
}
MPIX_DEV_CALL void store_odd_word(char* to, std::uint32_t i, std::uint32_t bytes, std::uint64_t word) {
  store_word(to, i, bytes, word);
}
MPIX_DEV_FN bool is_whole(const char* at, std::uint32_t i, std::uint32_t bytes) {
  return 8 * i + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
}
MPIX_DEV_FN std::uint64_t load_some(const char* from, std::uint32_t i, std::uint32_t bytes) {
#if MPIX_ON_DEVICE
  if (is_whole(from, i, bytes)) return reinterpret_cast<const std::uint64_t*>(from)[i];
#endif
  return load_odd_word(from, i, bytes);
}
MPIX_DEV_FN void store_some(char* to, std::uint32_t i, std::uint32_t bytes, std::uint64_t word) {
#if MPIX_ON_DEVICE
  if (is_whole(to, i, bytes)) {
    reinterpret_cast<std::uint64_t*>(to)[i] = word;
    return;
  }
#endif
  store_odd_word(to, i, bytes, word);
}

/// One thread: what was known of windows may not hold any more.
MPIX_DEV_FN void forget_parts(Ctx& c) {
  for (Aim& aim : c.aims) aim.present = 0;
  for (OwnPart& part : c.own) part.window = -1;
  c.last_part.window = -1;
}
MPIX_DEV_FN Aim& aim_of(Ctx& c, int window, int target) {
  return c.aims[static_cast<std::uint32_t>(target + window) % aims];
}
MPIX_DEV_FN OwnPart& own_part(Ctx& c, std::uint32_t window) { return c.own[window % own_parts]; }

/// One thread: nothing works any more.
MPIX_DEV_FN void give_up(Ctx& c, Result why) {
  c.broken = why;
  c.front_shift = 0;
  forget_parts(c);
}

/// Of a call: it failed, and why. All of the team call it with the same arguments.
MPIX_DEV_CALL Result fail(Ctx& c, DevCall call, Result result, std::int32_t window, std::int32_t rank,
                          std::int64_t a = 0, std::int64_t b = 0) {
  if (!is_first(c)) return result;
  RankNote& note = c.p.notes[c.rank - c.p.first_rank];
  if (load_relaxed(&note.failed) != 0) return result;
  note.failed_call = static_cast<std::uint32_t>(call);
  note.failure = static_cast<std::uint32_t>(result);
  note.failed_window = window;
  note.failed_rank = rank;
  note.failed_values[0] = a;
  note.failed_values[1] = b;
  store_release(&note.failed, 1);
  return result;
}

}  // namespace dev
}  // namespace mpix
