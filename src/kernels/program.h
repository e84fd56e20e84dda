// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "kernels/memory.h"

/// What kernels read: plain structs in device memory, shared words in the memory of either side.
///
/// Who writes each shared word, who polls it, and why that is enough (o: origin, t: target, e: an epoch of
/// the ordered pair o → t; all counters are of the pair, start at 0 and only grow):
///
/// | word               | lies in | written by                    | polled by                | order |
/// |--------------------|---------|-------------------------------|--------------------------|-------|
/// | posted             | o       | t's post: announce            | o's complete: may_send   | release / acquire: t's uses of the window before the post come before o's direct writes. On a GPU relaxed: those were kernels that have ended, and o only stores after its branch |
/// | acknowledged       | o       | t's wait: acknowledge         | o's complete: may_send   | release / acquire: t's reads of slot e come before o's writes of slot e + depth. On a GPU relaxed: the loads have returned, and o only stores after its branch |
/// | slot lines         | t       | o's complete: send            | t's wait: receive        | none: each half line carries its epoch's flag |
/// | slot header        | t       | o's complete: write_header    | t's wait: has_arrived    | release / acquire where data went direct: o's direct writes come before t's use of the window; else none, as a line |
/// | sent               | o       | o's complete                  | o's complete             | stream order |
/// | opened, closed     | t       | t's post; t's wait            | t's post; t's wait       | stream order |
///
/// The counters lie in device memory and the kernels advance them, so that a captured epoch can be replayed.
///
/// Why no deadlock: complete(e) waits for acknowledged ≥ e − depth, and, where data goes direct, for
/// posted ≥ e. MPI lets complete(e) wait for post(e); t posts epoch e only after it has waited for e − 1,
/// so the first wait asks for less than the second. Neither ever waits for t's wait(e).
/// tests/model/epoch.pml is this table for a model checker.
namespace mpix {

/// A word that host streams sleep on. Device memory of its own rank; peers ring it. Unused on a GPU.
struct alignas(64) Bell {
  std::uint32_t rings;     ///< futex; counts
  std::uint32_t sleepers;  ///< threads about to sleep, or asleep
};

/// How far one rank has come with one peer. Its kernels alone touch them.
struct PairCounters {
  std::uint64_t sent;       ///< access epochs to the peer whose signal has been written
  std::uint64_t opened;     ///< exposure epochs posted to the peer
  std::uint64_t closed;     ///< exposure epochs to the peer that have been waited for
  std::uint32_t sending;    ///< blocks of a send that have done their part; 0 between launches
  std::uint32_t receiving;  ///< and of a receive
};

/// The words of one rank for one peer.
struct alignas(64) PairWords {
  // Written by the peer, as the target of my access epochs; polled here.
  std::uint64_t posted;
  std::uint64_t acknowledged;
  alignas(64) PairCounters own;
};

/// Words of a window that its kernels and its own host share.
struct HostWords {
  std::uint64_t executed;  ///< programs that have run to their end
  std::uint32_t released;  ///< not 0: stop waiting, the window is broken (MPIX_ON_TIMEOUT=error)
};

/// A ring of `depth` slots, a power of two. Slot of epoch e: e mod depth.
/// A slot is a header line, two descriptor lines for each put that the target must move into its window,
/// then the payload lines of those that travel in the slot.
struct Ring {
  Line* lines;
  std::uint32_t depth;
  std::uint32_t slot_lines;
};

/// One recorded put, as kernels see it.
struct PutOp {
  const char* source;
  char* direct;             ///< write here: the target's window, or its staging memory; null: into the slot
  std::uint64_t bytes;
  std::uint64_t offset;     ///< in the target's window, for the descriptor
  std::uint32_t descriptor; ///< first of its two lines in the slot; 0: it has none
  std::uint32_t payload;    ///< first of its payload lines in the slot; 0: none
};

/// Descriptor lines: the offset; the size with this bit set where the payload lies in staging memory.
constexpr std::uint64_t staged_bit = std::uint64_t{1} << 63;

/// Header line: the number of descriptors; this bit where data went direct, so that the reader must acquire.
constexpr std::uint64_t direct_bit = std::uint64_t{1} << 63;

struct PostPeer {
  PairWords* words;       ///< mine
  std::uint64_t* posted;  ///< the peer's
  Bell* bell;             ///< the peer's
  int rank;
};

struct SendPeer {
  PairWords* words;  ///< mine
  Ring ring;         ///< mine, in the target's memory
  Bell* bell;        ///< the target's
  std::uint32_t first_op, op_count;
  std::uint32_t descriptors;  ///< of the whole epoch, for the header
  bool awaits_post;           ///< something goes direct
  bool signals;               ///< this entry ends the epoch to that target
  int rank;
};

struct ReceivePeer {
  PairWords* words;             ///< mine
  Ring ring;                    ///< the origin's, in my memory
  std::uint64_t* acknowledged;  ///< the origin's
  Bell* bell;                   ///< the origin's
  char* window;
  const char* staging;  ///< mirrors the window; null where origins write into the window
  int rank;
};

/// What a program works on.
struct Tables {
  const PostPeer* posts = nullptr;
  const SendPeer* sends = nullptr;
  const ReceivePeer* receives = nullptr;
  const PutOp* ops = nullptr;
};

/// The argument of one launch: any of the three parts, in this order; sends and receives progress together.
struct Program {
  Tables tables;
  std::uint32_t post_count = 0;
  std::uint32_t send_count = 0;
  std::uint32_t receive_count = 0;
  std::uint32_t op_count = 0;
  std::uint64_t send_bytes = 0;     ///< the most that goes to one peer, and
  std::uint64_t receive_bytes = 0;  ///< that is likely to come from one: how many blocks it is worth
  Bell* bell = nullptr;             ///< mine
  HostWords* host = nullptr;
};

}  // namespace mpix
