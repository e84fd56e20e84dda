// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "mpix_device/channel.h"
#include "wire/message.h"
#include "wire/program.h"

/// A rank of another node, for a device whose kernels cannot talk to the network: they pack the puts of an epoch into
/// one message, in pinned memory, and hand it to the relay (offnode/relay.h); at the target they unpack what has
/// landed. o: origin, t: target, e: an epoch of the pair o -> t. Pinned memory, but for the counters of each rank's
/// own, which lie in device memory, as on a node: a kernel reads them at home.
///
/// | word             | lies in | written by                  | read by         | order |
/// |------------------|---------|-----------------------------|-----------------|-------|
/// | there.posted     | t       | t's post                    | t's relay       | as `posted` in program.h; the relay acquires, and starts a transfer |
/// | allowed          | o       | o's relay: e                | o's complete(e) | epoch e - 1 is over: its message has left this process for good, and with it the block that e is packed into, the lane's slot and the chunk flags. Relaxed on a GPU, which only stores after its branch |
/// | task e           | o       | o's complete: the last part | o's relay       | channel.h. Chunk 0 is packed by all parts: each has fenced, and counted itself; the last one fences again |
/// | packed[c] = e    | o       | likewise, for chunk c       | o's relay       | the same |
/// | arrival[e mod 2] | t       | o's NIC                     | t's wait        | the signal of the transfer that writes the entries, and chunk 0; t acquires |
/// | landed[c] = e    | t       | o's NIC                     | t's wait        | the signal of the transfer that writes chunk c; t acquires |
/// | closed           | t       | t's wait                    | t's relay       | none: for reports |
///
/// There are two inboxes, used in turns: the relay starts a message that fits one when t has posted e - 1, for then t's
/// wait for e - 2 has emptied it. What goes apart it starts when t has posted e: then the wait for e - 1 has emptied
/// landing memory, and reads chunk flags no more. Until then the message lies packed, and complete(e) has ended:
/// kernels wait for the epoch before, never for their own post. MPI lets complete(e) wait for post(e), so the relay
/// owes nobody more. The first epoch waits for its post, which tells where the inboxes are. No deadlock: `allowed`
/// follows transfers, which wait for posts that MPI lets complete wait for, the budget and the network; nothing that
/// this rank enqueues behind.
///
/// Where the network reaches memory of devices, large puts are no part of the message: it takes them from the origin
/// buffers, and leaves them in the window. Such an epoch starts when t has posted e, as one whose data land apart; all
/// of these writes come in front of `arrival`. complete(e) then lasts until e is over, which `allowed` says: the
/// program may write to its origin buffers behind it. As a node's direct data, it waits for its own post.
///
/// The numbers of chunk flags are epochs, so nothing is reset. tests/model/relay.pml is this table for a model checker:
/// its block is the origin buffer as well as outgoing memory.
namespace mpix {

/// What kernels of an origin and its relay share.
struct RelayedOut {
  alignas(64) std::uint64_t allowed;  ///< a flag down: the epoch that may be packed
  alignas(64) std::uint64_t packed[most_chunks];
  static constexpr std::uint32_t lane_depth = 2;
  Task tasks[lane_depth];

  MPIX_FN Lane lane() { return Lane{tasks, lane_depth}; }
};

constexpr std::uint32_t inboxes = 2;

/// What the network writes for kernels of a target, beside the inboxes: these are the slots of ReceivePeer::ring.
struct RelayedIn {
  alignas(64) std::uint64_t arrival[inboxes];
  alignas(64) std::uint64_t landed[most_chunks];
  alignas(64) std::uint64_t closed;
};

MPIX_FN const MessageEntry* inbox_of(const Ring& ring, std::uint64_t epoch) {
  return reinterpret_cast<const MessageEntry*>(slot_of(ring, epoch));
}

/// In device memory: the counters of this rank's kernels.
struct RelayedCounters {
  PairWords words;
  std::uint32_t parts_packed[most_chunks];
};

/// In device memory: a plan's message to one target. Put i of the entry is put i of the message, and `direct` says
/// where its data go.
struct RelayedSend {
  RelayedOut* out;
  std::uint32_t* parts_packed;
  char* data;             ///< outgoing memory
  std::uint64_t bytes;    ///< of all data
  std::uint64_t message;  ///< for the relay
  std::uint32_t chunk_shift;
  bool reads_origin;  ///< the network does: the epoch ends when that is over
};

/// Some of a message's data, by position.
struct DataRange {
  std::uint64_t begin, end;
  MPIX_FN static DataRange of_chunk(std::uint32_t chunk, std::uint32_t shift) {
    if (shift == 0) return DataRange{0, ~std::uint64_t{0}};
    return DataRange{std::uint64_t{chunk} << shift, std::uint64_t{chunk + 1} << shift};
  }
};

/// As much of a put as lies in the range. `at`: the position of its data.
MPIX_FN void copy_within(const DataRange& range, std::uint64_t at, char* to, const char* from, std::uint64_t bytes,
                         Workers workers) {
  const std::uint64_t begin = at > range.begin ? at : range.begin;
  const std::uint64_t end = at + bytes < range.end ? at + bytes : range.end;
  if (begin < end) copy_bytes(to + (begin - at), from + (begin - at), end - begin, workers);
}

// ---- origin: complete ------------------------------------------------------------------------------

/// One thread of each part, when the part has packed the chunk.
template <class Crew>
MPIX_STEP void publish(const Crew& crew, const RelayedSend& send, std::uint64_t epoch, std::uint32_t chunk) {
  RelayedOut& out = *send.out;
  if (chunk == 0 && crew.part == 0) write_task(out.lane(), epoch, TaskKind::send, send.message);
  fence_stores();
  if (!crew.is_last(&send.parts_packed[chunk])) return;
  if (crew.parts > 1) fence_stores();
  if (chunk == 0)
    publish_task(out.lane(), epoch);
  else
    store_after_loads(&out.packed[chunk], epoch);
}

/// All of the crew, when the epoch is allowed.
template <class Crew, class Puts>
MPIX_STEP void pack(const Crew& crew, const SendPeer& peer, const Puts& put, std::uint64_t epoch) {
  const RelayedSend& send = *peer.relayed;
  const std::uint32_t chunks = chunks_in(send.bytes, send.chunk_shift);
  std::uint32_t first = 0, end = chunks == 1 ? peer.op_count : 0;  // of the puts that have a part in the chunk
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const DataRange range = DataRange::of_chunk(chunk, chunks == 1 ? 0 : send.chunk_shift);
    const auto position = [&](const PutOp& op) { return static_cast<std::uint64_t>(op.direct - send.data); };
    while (end < peer.op_count && position(put(peer.first_op + end)) < range.end) ++end;
    const auto pack_put = [&](const PutOp& op, Workers workers) {
      copy_within(range, position(op), op.direct, op.source, op.bytes, workers);
    };
    if (end - first == 1)
      pack_put(put(peer.first_op + first), crew.of_peer());
    else
      crew.share(end - first, peer.bytes, [&](std::uint32_t i, Workers workers, auto is_theirs) {
        const PutOp& op = put(peer.first_op + first + i);
        if (is_theirs(op.bytes)) pack_put(op, workers);
      });
    for (; first < end; ++first) {
      const PutOp& op = put(peer.first_op + first);
      if (position(op) + op.bytes > range.end) break;
    }
    if (!peer.signals) return;
    (void)crew.agree(true);
    if (crew.of_part().index == 0) publish(crew, send, epoch, chunk);
  }
}

/// Whether an epoch that has been packed needs its origin buffers no more.
MPIX_FN bool has_left(const RelayedSend& send, std::uint64_t epoch) {
  return !send.reads_origin || load_acquire(&send.out->allowed) > epoch;
}

// ---- target: wait ----------------------------------------------------------------------------------

/// The entries are there, and the first chunk; then *arrival is what says so.
MPIX_FN bool message_arrived(const RelayedIn& in, std::uint64_t epoch, std::uint64_t* arrival) {
  *arrival = load_acquire(&in.arrival[epoch % inboxes]);
  return Arrival{*arrival}.is_of(epoch);
}

/// All chunks are: for those who have something else to do until then.
inline bool all_landed(const RelayedIn& in, const MessageEntry* entries, std::uint64_t epoch, Arrival arrival) {
  if (arrival.chunk_shift() == 0 || arrival.entries() == 0) return true;
  const MessageEntry& last = entries[arrival.entries() - 1];
  const std::uint32_t chunks = chunks_in(last.data + last.bytes - entries[0].data, arrival.chunk_shift());
  for (std::uint32_t chunk = 1; chunk < chunks; ++chunk)
    if (load_acquire(&in.landed[chunk]) != epoch) return false;
  return true;
}

/// A single put in the inbox: its data are loaded beside its entry, in one trip to the host's memory. False: there are
/// too many.
template <class Crew>
MPIX_STEP bool unpack_single(const Crew& crew, const ReceivePeer& peer, const MessageEntry* entry, Arrival arrival,
                             MessageEntry& shared) {
  const char* const data = reinterpret_cast<const char*>(entry) + entries_bytes(1);
  const Workers workers = crew.of_peer();
  const std::uint32_t words = arrival.lines() * 8;
  if (arrival.entries() != 1 || words == 0 || words > Crew::batch * workers.size) return false;
  std::uint64_t word[Crew::batch];
  MPIX_UNROLL
  for (std::uint32_t i = 0; i < Crew::batch; ++i)
    if (workers.index + i * workers.size < words)
      word[i] = load_word(data, workers.index + i * workers.size, 8 * words);
  if (crew.of_part().index == 0) shared = {load_once(&entry->offset), load_once(&entry->bytes), 0};
  (void)crew.agree(true);
  char* const to = peer.window + shared.offset;
  const std::uint64_t bytes = shared.bytes;
  MPIX_UNROLL
  for (std::uint32_t i = 0; i < Crew::batch; ++i)
    if (8 * (workers.index + i * workers.size) < bytes)
      store_word(to, workers.index + i * workers.size, bytes, word[i]);
  return true;
}

/// All of the crew, when message_arrived gave it the arrival. False where the wait for a chunk was released.
template <class Crew>
MPIX_STEP bool unpack(const Crew& crew, const ReceivePeer& peer, std::uint64_t epoch, Arrival arrival,
                      typename Crew::Descriptors& descriptors) {
  RelayedIn& in = *peer.relayed;
  const Workers own = crew.of_part();
  // As good as: reports only compare it with posts.
  if (crew.of_peer().index == 0) store_after_loads(&in.closed, epoch);
  MessageEntry* const puts = descriptors.entries;
  const MessageEntry* const entries = inbox_of(peer.ring, epoch);
  if (unpack_single(crew, peer, entries, arrival, puts[0])) return true;
  const std::uint32_t shift = arrival.chunk_shift();
  const char* const landed = shift == 0 ? reinterpret_cast<const char*>(entries) : nullptr;
  std::uint64_t begin = 0;
  std::uint32_t chunk = 0;  // that the crew has waited for
  for (std::uint32_t first = 0; first < arrival.entries(); first += descriptors.count) {
    const std::uint32_t left = arrival.entries() - first, count = left < descriptors.count ? left : descriptors.count;
    if (first > 0) (void)crew.agree(true);
    if (own.index < count) {
      const MessageEntry* const entry = entries + first + own.index;
      puts[own.index] = {load_once(&entry->offset), load_once(&entry->bytes), load_once(&entry->data)};
    }
    (void)crew.agree(true);
    if (first == 0) begin = puts[0].data;
    const std::uint64_t end = puts[count - 1].data + puts[count - 1].bytes - begin;
    for (;; ++chunk) {
      if (chunk > 0) {
        const bool good = own.index != 0 || crew.await(peer, &in.landed[chunk], epoch);
        if (!crew.agree(good)) return false;
      }
      const DataRange range = DataRange::of_chunk(chunk, shift);
      crew.share(count, ~std::uint64_t{0}, [&](std::uint32_t i, Workers some, auto is_theirs) {
        const MessageEntry& entry = puts[i];
        if (is_theirs(entry.bytes))
          copy_within(range, entry.data - begin, peer.window + entry.offset, landed + entry.data, entry.bytes, some);
      });
      if (end <= range.end) break;
    }
  }
  return true;
}

}  // namespace mpix
