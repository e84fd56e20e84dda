// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "mpix_device/memory.h"
#include "wire/pack.h"

/// What kernels read: plain structs in device memory, shared words in the memory of either side.
///
/// Who writes each shared word, who polls it, and why that is enough (o: origin, t: target, e: an epoch of
/// the ordered pair o → t; all counters are of the pair, start at 0 and only grow):
///
/// | word               | lies in | written by                    | polled by                | order |
/// |--------------------|---------|-------------------------------|--------------------------|-------|
/// | posted             | o       | t's post: announce; ahead of it the service of t (epoch/free_posts.h) | o's complete: may_send   | release / acquire: t's uses of the window, and of the slots it has emptied, come before o's writes. On a GPU relaxed: those were kernels that have ended, and o only stores after its branch |
/// | slot lines         | t       | o's complete: send            | t's wait: receive        | none: each half line carries its epoch's flag |
/// | packs              | t       | o's complete: send            | t's wait: receive        | none: each carries its epoch's number (pack.h) |
/// | slot headers       | t       | o's complete: write_header    | t's wait: has_arrived    | release / acquire where data went direct: o's direct writes come before t's use of the window; else none, as a line |
/// | sent               | o       | o's complete                  | o's complete             | stream order |
/// | opened, closed     | t       | t's post; t's wait            | t's post; t's wait       | stream order |
///
/// The counters lie in device memory and the kernels advance them, so that a captured epoch can be replayed.
///
/// One word, `posted`, says both that the window may be written and which slots are free: t posts epoch e + 1
/// only after its wait for e has emptied slot e. So complete(e) needs posted ≥ e − depth + 1 for its slot, as much with
/// the depth of the packs where it has some, and posted ≥ e where data goes direct. MPI lets complete(e) wait for
/// post(e), and neither asks for more: no deadlock. With two slots or more an epoch without direct data does not wait
/// for its own post. tests/model/epoch.pml is this table for a model checker.
///
/// Several blocks of a GPU may share one peer (parts). Each has a counter of its own in sent and closed, and
/// reads and writes no other part's; part 0 also writes those of the parts that a launch does not have. So no
/// block has to find out whether it is the last. Where data goes direct, each part of a send writes a header
/// of its own behind its own stores, and the target waits for as many as the first header says. The last part of a
/// launch writes the first header, direct or not: blocks come to a GPU in order, so that all parts of a send whose
/// first header is there have a place, and none of them waits for a peer any more.
///
/// A launch that waits for long keeps one block a peer only: part 0. The others leave, and part 0 does their work when
/// what it waits for is there. `leaving`, one word of the pair and side, in the memory of the rank that waits:
///
/// | value          | written by                       | means                                         |
/// |----------------|----------------------------------|-----------------------------------------------|
/// | e, 1           | part 0 in epoch e, after a while | a part that waits may leave                   |
/// | e, 1, and bits | part p, by compare and exchange  | those parts have left: part 0 does their work |
/// | e, 0           | part 0: exchange                 | nobody leaves any more; the bits that it got are those who have left |
///
/// So a part has left, to itself and to part 0, or it does its own work; and where part 0 has not waited for long it
/// need not look. A part that comes after that finds what it waits for.
namespace mpix {

/// What the threads that do an epoch's steps together do: on a GPU it is compiled for nothing else.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MPIX_STEP __device__ inline
/// What its callers do not inline, as they seldom need it.
#define MPIX_SELDOM static __device__ __noinline__
#else
#define MPIX_STEP inline
#define MPIX_SELDOM inline
#endif
/// The host's compiler behind nvcc reads functions of both sides, too, and knows no such pragma.
#if defined(__CUDA_ARCH__) || defined(__HIPCC__)
#define MPIX_UNROLL _Pragma("unroll")
#else
#define MPIX_UNROLL
#endif

/// A word that host streams sleep on. Device memory of its own rank; peers ring it. Unused on a GPU.
struct alignas(64) Bell {
  std::uint32_t rings;     ///< futex; counts
  std::uint32_t sleepers;  ///< threads about to sleep, or asleep
};

/// Most blocks that share one peer.
constexpr std::uint32_t most_parts = 64;
/// Those that leave are bits of a word, but for part 0.
constexpr std::uint32_t most_parts_that_leave = 32;

/// Epochs of one rank with one peer.
struct EpochCounts {
  std::uint64_t sent, opened, closed;
};

/// Counts epochs, and how many of them ran in graphs, which the host cannot know. Side by side: kernels load both early
/// and store both at their end. (An atomic addition there cost a captured epoch of one kernel 0.7 µs of 3.4.)
struct alignas(16) EpochCounter {
  std::uint64_t replayed;
  std::uint64_t epochs;

  MPIX_FN EpochCounter load() const { return {load_relaxed(&replayed), load_relaxed(&epochs)}; }
  MPIX_FN EpochCounter next(bool captured) const { return {replayed + (captured ? 1 : 0), epochs + 1}; }
  /// The host may look at any time (NodeProgress::has_run), so a GPU stores both in one.
  MPIX_FN void store(EpochCounter after) {
#if MPIX_ON_DEVICE
    *this = after;
#else
    store_release(&replayed, after.replayed);
    store_release(&epochs, after.epochs);
#endif
  }
};

/// The same by part; part 0 counts what was replayed.
struct alignas(64) PartCounters {
  std::uint64_t replayed;
  std::uint64_t epochs[most_parts];
  std::uint64_t leaving;
  MPIX_FN void store_first(EpochCounter after) { reinterpret_cast<EpochCounter*>(&replayed)->store(after); }
  MPIX_FN std::uint64_t& operator[](std::uint32_t part) { return epochs[part]; }
  MPIX_FN const std::uint64_t& operator[](std::uint32_t part) const { return epochs[part]; }
};

/// How far one rank has come with one peer. Its kernels alone touch them. Where a wait was released by its
/// time-out they count on, so that they always say how much of what was enqueued has run.
struct PairCounters {
  EpochCounter opened;  ///< exposure epochs posted to the peer
  PartCounters sent;    ///< access epochs to the peer that a part has sent
  PartCounters closed;  ///< exposure epochs to the peer that a part has waited for
};

/// The counters of a window that has gone while a graph may still hold epochs of it: epochs whose post and whose
/// data nobody ever sends.
constexpr std::uint64_t retired_epoch = ~std::uint64_t{0} - 1;

/// The words of one rank for one peer.
struct alignas(64) PairWords {
  std::uint64_t posted;   ///< written by the peer, as the target of my access epochs; polled here
  std::uint64_t credit;   ///< for guards (wire/guard.h): the peer adds, and so do my kernels
  std::uint64_t pending;  ///< likewise
  alignas(64) PairCounters own;
};

/// What kernels that have waited for long wait for, for one peer: see wire/wait_note.h.
struct WaitNotes {
  std::uint64_t send;
  std::uint64_t receive;
};

struct GuardMarks;

/// Words of a window that its kernels and its own host share. All calls read `released`; so what each launch writes
/// lies in another cache line.
struct HostWords {
  alignas(64) std::uint64_t executed;  ///< programs that have run to their end, and hold on to nothing
  alignas(64) std::uint32_t released;  ///< not 0: stop waiting, the window is broken (MPIX_ON_TIMEOUT=error)
  WaitNotes* notes;                    ///< by rank, 0 at first; null: kernels write none
};

/// A ring of `depth` slots, a power of two. Slot of epoch e: e mod depth.
/// A slot is a header line, two descriptor lines for each put that the target must move into its window, the
/// payload lines of those that travel in the slot, and at its end the header lines of the other parts. What is much
/// and goes over a link that carries packs lies in these instead, in memory of their own, for what they carry might
/// look like a line. They are behind the slots, and as they take much memory only for two epochs at a time.
struct Ring {
  Line* lines;
  std::uint32_t depth;
  std::uint32_t slot_lines;  ///< where there are packs, a multiple of 8
  std::uint32_t slot_packs;

  MPIX_FN std::uint32_t pack_depth() const { return depth < 2 ? depth : 2; }
  MPIX_FN std::uint64_t bytes() const {
    return sizeof(Line) * depth * std::uint64_t{slot_lines} + sizeof(Pack) * pack_depth() * std::uint64_t{slot_packs};
  }
};

MPIX_FN Line* slot_of(const Ring& ring, std::uint64_t epoch) {
  return ring.lines + (epoch & (ring.depth - 1)) * ring.slot_lines;
}

/// Where the packs of an epoch lie, packs[i] being number i.
MPIX_FN Pack* packs_of(const Ring& ring, std::uint64_t epoch) {
  return reinterpret_cast<Pack*>(ring.lines + std::uint64_t{ring.depth} * ring.slot_lines) +
         (epoch & (ring.pack_depth() - 1)) * ring.slot_packs;
}

/// How many packs hold so many bytes.
MPIX_FN std::uint32_t packs_for(std::uint32_t bytes) { return (bytes + Pack::words * 8 - 1) / (Pack::words * 8); }

/// The lines of a slot before the headers at its end.
MPIX_FN std::uint32_t data_lines(const Ring& ring) { return ring.slot_lines - (most_parts - 1); }

/// One recorded put, as kernels see it.
struct PutOp {
  const char* source;
  char* direct;  ///< write here: the target's window, its staging memory, or outgoing memory; null: into the slot
  std::uint64_t bytes;
  std::uint64_t offset;      ///< in the target's window, for the descriptor
  std::uint32_t descriptor;  ///< first of its two lines in the slot; 0: it has none
  std::uint32_t payload;     ///< first of its payload lines in the slot; 0: none. Or the first of its packs
};

/// A put, as its two descriptor lines tell it: the offset in the window, and one word for the rest.
struct Descriptor {
  std::uint64_t offset;
  std::uint64_t size;  ///< bytes, and the first payload line, or pack; or bytes and staged_bit
  const char* data;    ///< where it is staged: its data here

  /// The payload lies in staging memory.
  static constexpr std::uint64_t staged_bit = std::uint64_t{1} << 63;
  MPIX_FN bool staged() const { return (size & staged_bit) != 0; }
  MPIX_FN std::uint64_t bytes() const { return staged() ? size & ~staged_bit : size & 0xffffffffu; }
  MPIX_FN std::uint32_t payload() const { return static_cast<std::uint32_t>(size >> 32); }
};

/// Header line: the number of descriptors, and the number of parts whose direct stores the reader must see
/// (0: nothing went direct). Or, where a single put through the mailbox is all, that put itself: it then has no
/// descriptor, and its payload begins where descriptors would. Of both kinds: whether the data lie in packs.
struct Header {
  std::uint64_t word;
  MPIX_FN static Header of(std::uint32_t descriptors, std::uint32_t direct_parts) {
    return Header{descriptors | static_cast<std::uint64_t>(direct_parts) << 32};
  }

  static constexpr std::uint64_t single_bit = std::uint64_t{1} << 63, packed_bit = std::uint64_t{1} << 62;
  static constexpr unsigned offset_bits = 40, bytes_bits = 22;
  static constexpr std::uint32_t single_payload = 1;  ///< its first payload line
  MPIX_FN static bool can_hold(std::uint64_t offset, std::uint64_t bytes) {
    return offset >> offset_bits == 0 && bytes >> bytes_bits == 0;
  }
  MPIX_FN static Header of_single(std::uint64_t offset, std::uint64_t bytes) {
    return Header{single_bit | bytes << offset_bits | offset};
  }
  MPIX_FN bool is_single() const { return (word & single_bit) != 0; }
  MPIX_FN Header packed() const { return Header{word | packed_bit}; }
  MPIX_FN bool is_packed() const { return (word & packed_bit) != 0; }
  MPIX_FN std::uint64_t single_offset() const { return word & ((std::uint64_t{1} << offset_bits) - 1); }
  MPIX_FN std::uint32_t single_bytes() const {
    return static_cast<std::uint32_t>((word & (packed_bit - 1)) >> offset_bits);
  }
  MPIX_FN std::uint32_t descriptors() const { return static_cast<std::uint32_t>(word); }
  MPIX_FN std::uint32_t direct_parts() const { return static_cast<std::uint32_t>((word & ~packed_bit) >> 32); }
};

struct RelayedSend;
struct RelayedIn;

struct PostPeer {
  PairWords* words;  ///< mine
  PairWords* there;  ///< mine, in the peer's memory
  Bell* bell;        ///< the peer's
  int rank;
  bool relayed;  ///< `there` is memory of this host: GPUs have no atomic operations on it
};

struct SendPeer {
  PairWords* words;     ///< mine
  PairWords* there;     ///< mine, in the target's memory
  Ring ring;            ///< mine, in the target's memory
  Bell* bell;           ///< the target's
  std::uint64_t bytes;  ///< of these operations
  std::uint32_t first_op, op_count;
  Header header;        ///< of the whole epoch, but for the parts; it says whether the data lie in packs
  bool awaits_post;     ///< something goes direct
  bool signals;         ///< this entry ends the epoch to that target
  std::uint32_t slots;  ///< so many epochs, less one, may this one be ahead of the target's posts
  int rank;
  const RelayedSend* relayed;    ///< on another node: a message is made of its puts (wire/relayed.h), and it has no
                                 ///< ring here
  const std::uint64_t* allowed;  ///< of a relayed one, in place of words->posted
};

struct ReceivePeer {
  PairWords* words;  ///< mine
  Ring ring;         ///< the origin's, in my memory
  char* window;
  const char* staging;  ///< mirrors the window; null where origins write into the window
  int rank;
  RelayedIn* relayed;  ///< on another node: `ring` are the inboxes for its messages (wire/relayed.h)
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
  std::uint64_t receive_bytes = 0;  ///< that may come from one: how many blocks it is worth
  bool captured = false;            ///< part of a graph: epochs count as replayed
  bool raises_posts = false;        ///< others may have announced them (epoch/free_posts.h)
  GuardMarks* guards = nullptr;     ///< mine; null: no guards in front of this
  Bell* bell = nullptr;             ///< mine
  HostWords* host = nullptr;
};

}  // namespace mpix
