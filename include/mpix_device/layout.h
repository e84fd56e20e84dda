// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory.h"
#include "param.h"

/// The memory of a domain: the ranks that kernels have, one for each block, and how they tell each other things.
///
/// Each process has one segment of device memory, which all processes of the node map (a process below is one of the
/// node; far.h has the others):
///
///   Header | sent, by rank | room, by rank | windows, by window and rank | attached, by attachment and process
///   | there, by comm and process | window calls, by comm, turn and rank | inbox of the first rank here | inbox of the next | …
///
/// and an inbox is
///
///   Inbox | heads, by process | pending notifications | lane of process 0 | lane of process 1 | …
///
/// A **lane** is a ring of lines (memory.h) from one process to one rank. A notification takes an even number of lines:
/// two for the entry, and one for every 8 bytes of data that travel with it. Lines are numbered from 0 without end;
/// line n lies at n modulo the length of the lane, and its flag is the lap (lap_of_line). So a line whose flag is right
/// was written in this lap, and no word says how far a lane is filled. An old flag could be taken for a new one after
/// 2³¹ laps without a write to the line.
///
/// Who writes each word, who looks at it, and why that is enough (o: a rank that notifies, O its process, t: its
/// target):
///
/// | word          | lies in | written by                       | read by             | order |
/// |---------------|---------|----------------------------------|---------------------|-------|
/// | sent[t]       | O       | ranks of O: fetch and add, device; where there is one alone it adds by itself | the same            | none: it gives out lines, and a rank writes those that it was given. Ranks of O take them in program order each |
/// | lines, entry  | t       | o, when it was given them, and room[t] is beyond them | t: relaxed, by flag | where data went straight into the window, or earlier puts did (after_puts): the team meets, one fence of o's before the entry's second line; t acquires that one when it has seen both, and its team meets. The first may come before the fence: t then knows what is on its way. Else none, as the data are in the lines |
/// | lines, data   | t       | o's team                         | t's team, by flag   | none: each half line has the lap |
/// | room[t]       | O       | t: line after the last that may be written; from the head, when it has taken what lay there | o | t's loads of the lines come first, and o only stores after its branch; for the entry of a flush t fences before, so that what it has moved is in the window for all |
/// | heads, reading | t      | t's reader                       | the same            | the lock |
/// | lock          | t       | t: init takes it, finish gives it back; a rank in flush, or with a full lane, of a target that runs no kernel | the same | acquire / release |
/// | pending       | t       | t's reader                       | the same            | the lock |
/// | arrived       | O       | ranks of O: add, device          | the last of them    | each fences before; the last after |
/// | there[O]      | every P | the last of O to arrive          | the last of P       | release / acquire at system scope: barriers are cumulative. Of processes that nobody awaits it is filled in beforehand |
/// | go            | P       | the last of P                    | ranks of P          | release / acquire |
/// | first_ranks, processes | O | host, before there are kernels  | ranks of O          | the launch |
/// | windows       | every P | host, while no kernel runs; or rank r its own entry, in MPIX_Dev_win_open | ranks of P | the barrier that follows |
/// | window calls  | every P | rank r its own, in MPIX_Dev_win_open and _close | ranks of P | the barrier that follows. There are two, in turns by the barriers' numbers: r writes the same one again after the next barrier, to which all come when they have read it |
///
/// A lane is full while room[t] < n + lines. Who finds it full, or waits for anything else, takes what lies in its own
/// lanes meanwhile, and sets aside (pending) what nobody asked for: two ranks with full lanes free each other. Lines
/// are given out in order, and taken in order: a rank that was given lines late waits for those before it, which belong
/// to ranks that wait for nothing but room. tests/model/lanes.pml is this table for a model checker.
///
/// Data in lines are in the window when t takes the notification, also before anybody asks for it. A flush puts an
/// entry of its own behind them, for which t gives back the room with a fence in front, and waits for that. Where t
/// runs no kernel, whoever waits for it takes the lock of its inbox, and reads its lanes in its place.
namespace mpix {
namespace dev {

#if defined(__CUDACC__) || defined(__HIPCC__)
/// One piece with its caller, so that what a thread has lies in registers.
#define MPIX_DEV_FN __device__ __forceinline__
#define MPIX_DEV_METHOD __device__
/// Calls that wait: out of line, as the registers of what polls must not add to those of what computes.
#define MPIX_DEV_CALL __device__ __noinline__ inline
#define MPIX_NO_UNROLL _Pragma("unroll 1")
#else
#define MPIX_DEV_FN inline
#define MPIX_DEV_METHOD
#define MPIX_DEV_CALL inline
#define MPIX_NO_UNROLL
#endif

/// A window is a number: those of the host first, then those that all ranks open, those of a process, those of a node.
constexpr std::uint32_t windows_each = 64, most_windows = 4 * windows_each;  // as many as an entry can name

constexpr std::uint32_t most_attachments = 64;
constexpr std::uint32_t most_ranks = 1u << 24;
constexpr std::uint64_t most_window_bytes = std::uint64_t{1} << 44;
constexpr std::uint32_t most_inline_bytes = 16384;
constexpr std::uint32_t least_lane_lines = 16, most_lane_lines = 1u << 16;

/// Groups of ranks meet in barriers: all, those of one process, those of one node.
enum Comm : std::uint32_t { world = 0, device = 1, node = 2, comms = 3 };
/// Those that they open.
MPIX_FN std::uint32_t first_window_of(Comm comm) { return (1 + comm) * windows_each; }

struct alignas(64) Header {
  std::uint32_t rings, sleepers;  ///< host back end: a bell for what concerns all ranks of the process
  std::uint64_t arrived[comms];
  std::uint64_t go[comms];
  std::uint64_t tasks_given, data_given;  ///< far.h
  std::uint64_t logged;                   ///< lines, by ranks of the process
  /// Of the processes of all nodes that have ranks, and how many ranks there are behind them; in device memory. Null:
  /// the library is older, as both lie where it has nothing.
  const std::uint32_t* first_ranks;
  std::uint64_t processes;  ///< that have ranks
};
static_assert(sizeof(Header) == 128, "what lies behind it stays where it is");

struct WindowEntry {
  char* base;             ///< as mapped by the process in whose segment the entry lies
  std::uint64_t present;  ///< bytes + 1; 0: no such window
};

/// What a reader of an inbox has come to. Its rank keeps it in its context while it runs.
struct Reading {
  std::uint64_t taken;             ///< notifications, ever
  std::uint32_t turn;              ///< the process whose lane is looked at first
  std::uint32_t first, end, live;  ///< of the pending ones; some between the first and the end may be dead
};

struct alignas(64) Inbox {
  std::uint32_t rings, sleepers;  ///< host back end: the rank's bell
  std::uint64_t lock;
  Reading reading;
  std::uint64_t barriers[comms];   ///< that the rank has been through
  std::uint64_t open[comms];       ///< bits: windows that it has opened
  std::uint64_t has_put, far_put;  ///< see MPIX_Dev_ctx; from one launch to the next
  std::uint64_t finished;          ///< launches, in whatever order they came: they are one after another by `lock`
  std::uint64_t waits;             ///< of the rank so far
};

/// A notification, as it lies in the entry's lines.
///   what: tag 32 | source 24 | window 8
///   how:  0 0 4 | bytes 60                    the data went straight into the window, or there are none
///         1 4   | bytes 16 | displacement 44  they follow in lines
///         2 4   | bytes 60                    the source has read so many bytes of the window
///         3 4   | 0                           no notification: the source flushes
///   and the highest bit of all but direct: earlier puts went straight into the window, and the target has to fence
/// A pending one has its bytes alone in `how`.
struct Notification {
  std::uint64_t what, how;
};
enum Kind : std::uint32_t { direct = 0, in_lines = 1, was_read = 2, flushing = 3 };
constexpr std::uint64_t after_puts = std::uint64_t{1} << 63;
constexpr std::uint64_t dead = ~std::uint64_t{0};  ///< no tag is that large
constexpr std::uint32_t entry_lines = 2;

/// Which lap of its lane a line was written in, as the line says; it is never 0, as lines say in which nothing was
/// written, nor no_lap. They come again after hours and days of small puts, when no line has one of the lap before.
MPIX_FN std::uint32_t lap_of_line(std::uint64_t line, std::uint32_t lane_shift) {
  return (static_cast<std::uint32_t>(line >> lane_shift) & 0x7fffffffu) + 1;
}
constexpr std::uint32_t no_lap = ~0u;  ///< of lines that nobody looks at

MPIX_FN std::uint64_t what_of(std::uint32_t tag, std::uint32_t source, std::uint32_t window) {
  return tag | std::uint64_t{source} << 32 | std::uint64_t{window} << 56;
}
MPIX_FN std::uint32_t tag_of(std::uint64_t what) { return static_cast<std::uint32_t>(what); }
MPIX_FN std::uint32_t source_of(std::uint64_t what) { return static_cast<std::uint32_t>(what >> 32) & 0xffffffu; }
MPIX_FN std::uint32_t window_of(std::uint64_t what) { return static_cast<std::uint32_t>(what >> 56); }
MPIX_FN std::uint32_t kind_of(std::uint64_t how) { return static_cast<std::uint32_t>(how >> 60) & 7u; }
MPIX_FN std::uint64_t bytes_of(std::uint64_t how) {
  return kind_of(how) == in_lines ? how >> 44 & 0xffffu : how & ((std::uint64_t{1} << 60) - 1);
}
/// As it lies among the pending.
MPIX_FN Notification as_pending(std::uint64_t what, std::uint64_t how) {
  const std::uint64_t kind = kind_of(how) == was_read ? was_read : direct;
  return Notification{what, kind << 60 | bytes_of(how)};
}
MPIX_FN std::uint64_t displacement_of(std::uint64_t how) { return how & (most_window_bytes - 1); }
MPIX_FN std::uint64_t how_of(Kind kind, std::uint64_t bytes) { return std::uint64_t{kind} << 60 | bytes; }
MPIX_FN std::uint64_t how_in_lines(std::uint64_t bytes, std::uint64_t displacement) {
  return std::uint64_t{in_lines} << 60 | bytes << 44 | displacement;
}
MPIX_FN std::uint32_t data_lines(std::uint64_t bytes) { return static_cast<std::uint32_t>((bytes + 7) / 8); }
/// All of a notification; even, so that an entry never lies on both ends of a lane.
MPIX_FN std::uint32_t lines_of(std::uint64_t how) {
  return kind_of(how) == in_lines ? (entry_lines + data_lines(bytes_of(how)) + 1) / 2 * 2 : entry_lines;
}

/// What a rank does in a call that opens or closes a window, for the others of its group: it does so only if all do.
///   number of the barrier 48 | fails 1 | act 7 | window 8
/// What a rank cannot do fails on all: open_none is to open one more than there may be.
enum class WindowAct : std::uint32_t { open, open_none, close };
constexpr std::uint64_t window_call_fails = std::uint64_t{1} << 15;
MPIX_FN std::uint64_t window_call(std::uint64_t barrier, WindowAct act, std::uint32_t number) {
  return barrier << 16 | static_cast<std::uint64_t>(act) << 8 | number;
}
MPIX_FN std::uint64_t barrier_of(std::uint64_t call) { return call >> 16; }
MPIX_FN std::uint64_t window_call_index(Comm comm, std::uint64_t barrier, std::uint32_t rank, std::uint64_t ranks) {
  return (2 * std::uint64_t{comm} + barrier % 2) * ranks + rank;
}

/// Where things lie in a segment.
struct Places {
  std::uint64_t sent, room, windows, attached, there, window_calls, inboxes;
};
MPIX_FN Places places(std::uint64_t ranks, std::uint64_t processes) {
  Places at{};
  at.sent = sizeof(Header);
  at.room = at.sent + 8 * ranks;
  at.windows = (at.room + 8 * ranks + 15) / 16 * 16;
  at.attached = at.windows + most_windows * ranks * sizeof(WindowEntry);
  at.there = at.attached + most_attachments * processes * sizeof(WindowEntry);
  at.window_calls = at.there + 8 * comms * processes;
  at.inboxes = (at.window_calls + 8 * comms * 2 * ranks + 255) / 256 * 256;
  return at;
}
/// There is a head more, of the lane for all that comes from other nodes.
MPIX_FN std::uint64_t pending_at(std::uint64_t processes) {
  return (sizeof(Inbox) + 8 * (processes + 1) + 15) / 16 * 16;
}
MPIX_FN std::uint64_t lanes_at(std::uint64_t processes, std::uint64_t most_pending) {
  return (pending_at(processes) + most_pending * sizeof(Notification) + 127) / 128 * 128;
}

/// What goes wrong, in names of its own: mpix_device.h turns it into MPI's error classes.
enum class Result : std::uint32_t {
  ok,
  argument,
  buffer,
  count,
  group,
  memory,
  not_attached,
  order,
  other,
  range,
  rank,
  synchronization,
  tag,
  window,
  root,
  operation,
};

enum class DevCall : std::uint32_t {
  none,
  init,
  put,
  get,
  put_notify,
  put_notify_2d,
  get_notify,
  notify,
  wait,
  test,
  flush,
  barrier,
  win_open,
  win_close,
  put_notify_all,
  bcast,
  reduce,
};

/// What is looked for; negative: any.
struct Query {
  std::int32_t window, source, tag;
};

/// What a rank tells the host, in memory of the host: what it has waited for long, and its first error.
struct alignas(128) RankNote {
  std::uint64_t waits;     ///< 0: for nothing, or not for long; else which wait of the rank it is. Written last
  std::uint64_t words[4];  ///< Waiting
  std::uint64_t failed;    ///< 0, or 1 when the rest is there
  std::uint32_t failed_call, failure;
  std::int32_t failed_window, failed_rank;
  std::int64_t failed_values[2];
  std::uint64_t finished;  ///< launches
};

/// What kernels tell (MPIX_Dev_log), in memory of the host: a ring, line n at n modulo its length. The host reads it
/// now and then; what was written over meanwhile is lost, and said to be.
struct alignas(64) LogLine {
  std::uint64_t number;  ///< from 1; written last
  std::uint64_t who;     ///< id 32 | rank 32
  std::int64_t values[3];
};
constexpr std::uint32_t log_lines = 256;

struct Waiting {
  DevCall call;
  Query query;
  std::uint32_t needs, total;
};

MPIX_FN std::uint64_t two_words(std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; }

/// Words, as the host may look at any time.
MPIX_FN void write_waiting(RankNote& note, const Waiting& waiting, std::uint64_t number) {
  store_after_loads(&note.waits, 0);
  store_after_loads(&note.words[0], static_cast<std::uint64_t>(waiting.call));
  store_after_loads(&note.words[1], two_words(static_cast<std::uint32_t>(waiting.query.window),
                                              static_cast<std::uint32_t>(waiting.query.source)));
  store_after_loads(&note.words[2], static_cast<std::uint32_t>(waiting.query.tag));
  store_after_loads(&note.words[3], two_words(waiting.needs, waiting.total));
  store_release(&note.waits, number);
}
MPIX_FN Waiting waiting_in(const RankNote& note) {
  std::uint64_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = load_acquire(&note.words[i]);
  return Waiting{static_cast<DevCall>(words[0]),
                 Query{static_cast<std::int32_t>(words[1]), static_cast<std::int32_t>(words[1] >> 32),
                       static_cast<std::int32_t>(words[2])},
                 static_cast<std::uint32_t>(words[3]), static_cast<std::uint32_t>(words[3] >> 32)};
}

/// Where a thread of the host back end sleeps: the bell of its rank, or that of its process. It never sleeps for longer
/// than a moment where nobody might ring.
enum class Sleep : std::uint32_t { for_notifications, for_room, for_barrier, for_turn };

/// What the library does for ranks that are threads.
struct Hooks {
  /// After a look in vain; false: the domain is broken.
  bool (*pause)(void* waiter, Sleep sleep);
  /// The wait is over.
  void (*refresh)(void* waiter);
  void (*ring)(void* bell);
  /// There is a task for the service.
  void (*post)(void* waiter);
};

MPIX_FN bool matches(std::uint64_t what, const Query& query) {
  return what != dead && (query.tag < 0 || tag_of(what) == static_cast<std::uint32_t>(query.tag)) &&
         (query.source < 0 || source_of(what) == static_cast<std::uint32_t>(query.source)) &&
         (query.window < 0 || window_of(what) == static_cast<std::uint32_t>(query.window));
}

}  // namespace dev
}  // namespace mpix
