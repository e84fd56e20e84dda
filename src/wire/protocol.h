// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/guard.h"
#include "wire/program.h"
#include "wire/relayed.h"

/// The steps of an epoch, each for one peer; the words they touch and the order argument are in program.h. A device
/// maps peers to its blocks, or to a polling loop, which waits until may_send or has_arrived. Then an origin does
/// `send` and `advance` for each target, a target `receive` and `advance` for each origin.
///
/// Those who do the steps together for one peer are a crew. What differs between crews:
///
/// | of a crew      | Alone: the thread of a host stream | Block of device/gpu: a part of those that share the peer   |
/// |----------------|------------------------------------|------------------------------------------------------------|
/// | part, parts    | the only one                       | which, and how many there are in the launch                |
/// | counted_parts  | one: nobody counts the others      | most_parts                                                 |
/// | of_part        | itself                             | the threads of the block                                   |
/// | of_peer        | itself                             | the threads of all blocks that share the peer              |
/// | agree          | its own word                       | a barrier of the block: whether all of it say yes          |
/// | await          | a look again and again             | likewise, with notes for the host; false: it is released   |
/// | is_last        | it is                              | of the parts, to count itself in a word in device memory   |
/// | share          | one put after another              | large ones all together, small ones each by a warp         |
/// | batch          | 1: each word as it is loaded       | words that a thread loads before it uses the first of them |
/// | carries_packs  | yes (tests)                        | whether the GPU may                                        |
/// | lanes          | 1                                  | 8: threads that hold a pack together                       |
/// | store_pack     | its words                          | a thread's share of them, the last one's with the number   |
/// | await a pack   | likewise                           | a warp's packs, all together                               |
/// | converge       | nothing                            | the threads of a warp go on together                       |
/// | descriptors    | one at a time                      | as many as a block reads at a time, in memory of the block |
namespace mpix {

/// A host stream's thread.
struct Alone {
  static constexpr bool carries_packs = true;
  static constexpr std::uint32_t part = 0, parts = 1, counted_parts = 1, batch = 1, lanes = 1;
  struct Descriptors {
    static constexpr std::uint32_t count = 1;
    union {
      Descriptor all[count];
      MessageEntry entries[count];
    };
  };
  static Workers of_part() { return Workers{0, 1}; }
  static Workers of_peer() { return Workers{0, 1}; }
  static bool agree(bool yes) { return yes; }
  /// The header has arrived, so its origin is past its waits, and the line is at most a store's latency away.
  static bool await(const ReceivePeer&, const Line* line, std::uint32_t flag, std::uint64_t* data) {
    while (!line_arrived(line, flag, data)) {
    }
    return true;
  }
  /// has_arrived() has seen that all flags are up.
  static bool await(const ReceivePeer&, const std::uint64_t* flag, std::uint64_t value) {
    return load_acquire(flag) == value;
  }
  static void converge() {}
  static void store_pack(Pack* pack, std::uint32_t, const std::uint64_t* words) {
    for (std::uint32_t i = 0; i < Pack::words; ++i) store_release(&pack->word[i], words[i]);
    store_release(&pack->number, words[Pack::words]);
  }
  static bool await(const ReceivePeer&, const Pack* pack, std::uint32_t, std::uint64_t number, std::uint64_t* words) {
    while (load_acquire(&pack->number) != number) {
    }
    for (std::uint32_t i = 0; i < Pack::words; ++i) words[i] = load_relaxed(&pack->word[i]);
    return true;
  }
  static bool is_last(std::uint32_t*) { return true; }
  template <class Move>
  static void share(std::uint32_t count, std::uint64_t, Move move) {
    for (std::uint32_t i = 0; i < count; ++i) move(i, of_peer(), [](std::uint64_t) { return true; });
  }
};

/// The flag of an epoch's lines: never 0, which marks a line that was never written or was scrubbed.
/// It repeats after 2^32 - 1 epochs; scrub() sees to it that no line survives that long.
MPIX_FN std::uint32_t flag_of(std::uint64_t epoch) { return static_cast<std::uint32_t>(epoch % 0xffffffffu) + 1; }

/// Where a part is: its last epoch, and, part 0, how many of all were replayed.
MPIX_FN EpochCounter load_counter(const PartCounters& counters, std::uint32_t part) {
  return {part == 0 ? load_relaxed(&counters.replayed) : 0, load_relaxed(&counters.epochs[part])};
}

/// A part has done its epoch, and all of it have read the counter. Part 0 also counts for the parts that this launch
/// does not have, and for the `leavers`.
template <class Crew>
MPIX_STEP void advance(const Crew& crew, PartCounters& counters, EpochCounter before, bool captured,
                       std::uint32_t leavers = 0) {
  const EpochCounter after = before.next(captured);
  const Workers own = crew.of_part();
  if (crew.part != 0) {
    if (own.index == 0) counters[crew.part] = after.epochs;
    return;
  }
  if (own.index == 0) counters.store_first(after);
  for (std::uint32_t other = crew.parts + own.index; other < Crew::counted_parts; other += own.size)
    counters[other] = after.epochs;
  if (leavers != 0 && own.index < most_parts_that_leave && (leavers >> own.index & 1) != 0)
    counters[own.index] = after.epochs;
}

// ---- target: post ----------------------------------------------------------------------------------

/// `before`: what own.opened is.
MPIX_FN void announce(const PostPeer& peer, EpochCounter before, bool captured = false, bool guarded = false,
                      bool raises = false) {
  const EpochCounter after = before.next(captured);
  if (after.epochs > retired_epoch) return;
  if (raises && !peer.relayed)
    raise_after_loads(&peer.there->posted, after.epochs);
  else
    store_after_loads(&peer.there->posted, after.epochs);
  if (guarded) count_post(peer);
  // The host may see this before `posted` is there: a rank leaves its memory to nobody else before it has all posts
  // that are still to come (NodeProgress::has_all_posts).
  peer.words->own.opened.store(after);
}

// ---- origin: complete ------------------------------------------------------------------------------

/// Both the credit and the post: what the word of may_go has to be before a part may send its next epoch.
MPIX_FN std::uint64_t post_needed(const SendPeer& peer, std::uint64_t epoch) {
  return epoch >= peer.slots ? epoch - peer.slots + 1 : 0;
}

/// `posted`, or what the relay says.
MPIX_FN const std::uint64_t* may_go(const SendPeer& peer) { return peer.relayed ? peer.allowed : &peer.words->posted; }

MPIX_FN bool may_send(const SendPeer& peer, std::uint32_t part = 0) {
  return load_before_stores(may_go(peer)) >= post_needed(peer, peer.words->own.sent[part] + 1);
}

MPIX_FN void write_descriptor(const PutOp& op, Line* slot, std::uint32_t flag) {
  write_line(slot + op.descriptor, op.offset, flag);
  write_line(slot + op.descriptor + 1,
             op.direct ? op.bytes | Descriptor::staged_bit : op.bytes | static_cast<std::uint64_t>(op.payload) << 32,
             flag);
}

template <class Crew>
MPIX_STEP void send_lines(const PutOp& op, Line* payload, std::uint32_t flag, Workers workers) {
  const std::uint32_t words = static_cast<std::uint32_t>((op.bytes + 7) / 8);
  for (std::uint32_t first = workers.index; first < words; first += Crew::batch * workers.size) {
    std::uint64_t word[Crew::batch];
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < Crew::batch; ++i)
      if (first + i * workers.size < words) word[i] = load_word(op.source, first + i * workers.size, op.bytes);
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < Crew::batch; ++i)
      if (first + i * workers.size < words) write_line(payload + first + i * workers.size, word[i], flag);
  }
}

/// What a lane has of a pack: `own` words, the last lane's last one the number.
template <class Crew>
struct PackLanes {
  static constexpr std::uint32_t lanes = Crew::lanes, own = 16 / lanes;
  std::uint32_t lane, group, groups;  ///< a group of lanes holds a pack; groups of the workers

  MPIX_STEP explicit PackLanes(Workers workers)
      : lane(workers.index % lanes), group(workers.index / lanes), groups(workers.size / lanes) {}
  MPIX_STEP bool is_last() const { return lane == lanes - 1; }
  /// Word w of this lane's in pack i of a put.
  MPIX_STEP std::uint32_t word_of(std::uint32_t i, std::uint32_t w) const { return i * Pack::words + lane * own + w; }
  MPIX_STEP bool is_data(std::uint32_t w) const { return w < own - 1 || !is_last(); }
};

/// `packs`: the put's. Workers are whole warps.
template <class Crew>
MPIX_STEP void send_packs(const Crew& crew, const PutOp& op, Pack* packs, std::uint64_t epoch, Workers workers) {
  const PackLanes<Crew> my(workers);
  const auto bytes = static_cast<std::uint32_t>(op.bytes);
  const std::uint32_t words = (bytes + 7) / 8, count = packs_for(bytes);
  for (std::uint32_t first = 0; first < count; first += my.groups) {
    const std::uint32_t i = first + my.group;
    std::uint64_t word[my.own];
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < my.own; ++w) {
      const std::uint32_t at = my.word_of(i, w);
      word[w] = !my.is_data(w) ? epoch : at < words ? load_word(op.source, at, op.bytes) : 0;
    }
    crew.converge();
    if (i < count) crew.store_pack(packs + i, my.lane, word);
  }
}

/// Write a put's part of the slot, or its data into the target's window.
template <class Crew>
MPIX_STEP void send_put(const Crew& crew, const SendPeer& peer, const PutOp& op, std::uint64_t epoch, Workers workers) {
  Line* const slot = slot_of(peer.ring, epoch);
  const std::uint32_t flag = flag_of(epoch);
  if (op.descriptor != 0 && workers.index == 0) write_descriptor(op, slot, flag);
  if (op.direct) return copy_bytes(op.direct, op.source, op.bytes, workers);
  if constexpr (Crew::carries_packs)
    if (peer.header.is_packed()) return send_packs(crew, op, packs_of(peer.ring, epoch) + op.payload, epoch, workers);
  send_lines<Crew>(op, slot + op.payload, flag, workers);
}

/// The data of an epoch. `put(i)`: put i of the program.
template <class Crew, class Puts>
MPIX_STEP void send_puts(const Crew& crew, const SendPeer& peer, const Puts& put, std::uint64_t epoch) {
  if (peer.op_count == 1)
    send_put(crew, peer, put(peer.first_op), epoch, crew.of_peer());
  else
    crew.share(peer.op_count, peer.bytes, [&](std::uint32_t i, Workers workers, auto is_theirs) {
      const PutOp& op = put(peer.first_op + i);
      if (is_theirs(op.bytes)) send_put(crew, peer, op, epoch, workers);
    });
}

/// The i-th header line: the first of the slot, or one of those at its end.
MPIX_FN std::uint32_t header_line(const Ring& ring, std::uint32_t i) { return i == 0 ? 0 : data_lines(ring) + i - 1; }

/// One thread of each part. Where something went direct: after the whole part has sent. Else only the last part writes
/// one, at any time, for the lines of an eager epoch validate themselves. The first header is that of the last part.
MPIX_FN void write_header(const SendPeer& peer, std::uint64_t epoch, std::uint32_t part, std::uint32_t parts) {
  if (!peer.awaits_post && part != parts - 1) return;
  Line* line = slot_of(peer.ring, epoch) + header_line(peer.ring, parts - 1 - part);
  if (peer.awaits_post)
    write_line_release(line, Header::of(peer.header.descriptors(), parts).word, flag_of(epoch));
  else
    write_line(line, peer.header.word, flag_of(epoch));
}

/// What an origin does for one target: all of the crew, when it may send.
template <class Crew, class Puts>
MPIX_STEP void send(const Crew& crew, const SendPeer& peer, const Puts& put, std::uint64_t epoch, bool guarded) {
  if (peer.relayed) return pack(crew, peer, put, epoch);
  send_puts(crew, peer, put, epoch);
  if (!peer.signals) return;
  (void)crew.agree(true);
  if (crew.of_part().index != 0) return;
  write_header(peer, epoch, crew.part, crew.parts);
  if (guarded) count_sent(peer.words, peer.there, crew.part, crew.parts);
}

// ---- target: wait ----------------------------------------------------------------------------------

/// The first header is there; then *header is what it says. Of a relayed origin: its message, whole.
inline bool has_arrived(const ReceivePeer& peer, std::uint64_t epoch, Header* header) {
  if (peer.relayed)
    return message_arrived(*peer.relayed, epoch, &header->word) &&
           all_landed(*peer.relayed, inbox_of(peer.ring, epoch), epoch, Arrival{header->word});
  return line_arrived(slot_of(peer.ring, epoch), flag_of(epoch), &header->word);
}

MPIX_FN Descriptor single_put(Header header) {
  const std::uint32_t payload = header.is_packed() ? 0 : Header::single_payload;
  return Descriptor{header.single_offset(), header.single_bytes() | static_cast<std::uint64_t>(payload) << 32, nullptr};
}

// From here on: false where the wait for a line was released.

template <class Crew>
MPIX_STEP bool read_descriptor(const Crew& crew, const ReceivePeer& peer, const Line* slot, std::uint32_t index,
                               std::uint32_t flag, Descriptor* put) {
  *put = Descriptor{0, 0, nullptr};
  Descriptor read{0, 0, nullptr};
  if (!crew.await(peer, slot + 1 + 2 * index, flag, &read.offset)) return false;
  if (!crew.await(peer, slot + 2 + 2 * index, flag, &read.size)) return false;
  if (read.staged()) {
    read.data = peer.staging + read.offset;
  }
  *put = read;
  return true;
}

template <class Crew>
MPIX_STEP bool receive_lines(const Crew& crew, const ReceivePeer& peer, const Line* payload, std::uint32_t flag,
                             char* to, std::uint32_t bytes, Workers workers) {
  const std::uint32_t words = (bytes + 7) / 8;
  for (std::uint32_t first = workers.index; first < words; first += Crew::batch * workers.size) {
    std::uint64_t word[Crew::batch];
    bool there[Crew::batch];
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < Crew::batch; ++i)
      there[i] = first + i * workers.size < words && line_arrived(payload + first + i * workers.size, flag, &word[i]);
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < Crew::batch; ++i) {
      const std::uint32_t at = first + i * workers.size;
      if (at >= words) continue;
      if (!there[i] && !crew.await(peer, payload + at, flag, &word[i])) return false;
      store_word(to, at, bytes, word[i]);
    }
  }
  return true;
}

template <class Crew>
MPIX_STEP bool receive_packs(const Crew& crew, const ReceivePeer& peer, const Pack* packs, std::uint64_t epoch,
                             char* to, std::uint32_t bytes, Workers workers) {
  const PackLanes<Crew> my(workers);
  const std::uint32_t words = (bytes + 7) / 8, count = packs_for(bytes);
  for (std::uint32_t first = 0; first < count; first += my.groups) {
    const std::uint32_t i = first + my.group;
    std::uint64_t word[my.own];
    // All of a warp come here, those without a pack with one that others have.
    if (!crew.await(peer, packs + (i < count ? i : first), my.lane, epoch, word)) return false;
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < my.own; ++w) {
      const std::uint32_t at = my.word_of(i, w);
      if (my.is_data(w) && i < count && at < words) store_word(to, at, bytes, word[w]);
    }
  }
  return true;
}

/// Move the data of one put into the window.
template <class Crew>
MPIX_STEP bool receive_put(const Crew& crew, const ReceivePeer& peer, const Descriptor& put, std::uint64_t epoch,
                           bool is_packed, Workers workers) {
  char* const to = peer.window + put.offset;
  const auto bytes = static_cast<std::uint32_t>(put.bytes());
  if (put.staged()) {
    copy_bytes(to, put.data, put.bytes(), workers);
    return true;
  }
  if constexpr (Crew::carries_packs)
    if (is_packed)
      return receive_packs(crew, peer, packs_of(peer.ring, epoch) + put.payload(), epoch, to, bytes, workers);
  return receive_lines(crew, peer, slot_of(peer.ring, epoch) + put.payload(), flag_of(epoch), to, bytes, workers);
}

/// How many rounds of a slot there are to each line that is wiped: a wipe touches a cold line.
constexpr std::uint32_t rounds_per_scrub = 16;

/// Now and then wipe one line of the slot that this epoch did not use, each in turn. So every line is either
/// rewritten or wiped within rounds_per_scrub × depth × slot_lines epochs (at most 2^28), and none is left to
/// carry the right flag when flags repeat, after 2^32. `used`: the lines from the first on that the epoch used.
MPIX_FN void scrub(const Ring& ring, std::uint64_t epoch, std::uint32_t used, std::uint32_t direct_parts) {
  const std::uint64_t round = epoch / ring.depth;
  if (round % rounds_per_scrub != 0) return;
  const std::uint32_t line = 1 + static_cast<std::uint32_t>((round / rounds_per_scrub) % (ring.slot_lines - 1));
  const std::uint32_t tail = data_lines(ring);
  if (line < tail ? line < used : line - tail + 1 < direct_parts) return;
  write_line(slot_of(ring, epoch) + line, 0, 0);
}

/// That an epoch uses.
MPIX_FN std::uint32_t lines_of_single(Header header) {
  return Header::single_payload + (header.is_packed() ? 0 : (header.single_bytes() + 7) / 8);
}

/// Of a slot.
template <class Crew>
MPIX_STEP bool receive_slot(const Crew& crew, const ReceivePeer& peer, std::uint64_t epoch, Header header,
                            typename Crew::Descriptors& descriptors) {
  const std::uint32_t flag = flag_of(epoch);
  const Line* const slot = slot_of(peer.ring, epoch);
  const Workers own = crew.of_part(), workers = crew.of_peer();
  bool good = true;
  if (!header.is_single() && header.direct_parts() > 0) {
    std::uint64_t same;
    for (std::uint32_t i = own.index; good && i < header.direct_parts(); i += own.size)
      good = crew.await(peer, slot + header_line(peer.ring, i), flag, &same);
    // By those that have seen a header, as agree() hands on what they have seen: fences of all threads of a GPU's block
    // cost 2 µs of 10 (512 KiB, captured, 2 H100).
    if (own.index < header.direct_parts()) fence_acquire();
    if (!crew.agree(good)) return false;
  }
  const bool is_packed = header.is_packed(), is_single = header.is_single();
  const std::uint32_t all = is_single ? 1 : header.descriptors();
  std::uint32_t used = is_single ? 1 : 1 + 2 * all;
  for (std::uint32_t first = 0; first < all; first += descriptors.count) {
    const std::uint32_t left = all - first, count = left < descriptors.count ? left : descriptors.count;
    if (first > 0) (void)crew.agree(true);
    Descriptor* const puts = descriptors.all;
    if (is_single) {
      if (own.index == 0) puts[0] = single_put(header);
    } else if (own.index < count && !read_descriptor(crew, peer, slot, first + own.index, flag, &puts[own.index])) {
      good = false;
    }
    (void)crew.agree(true);
    crew.share(count, ~std::uint64_t{0}, [&](std::uint32_t i, Workers some, auto is_theirs) {
      if (is_theirs(puts[i].bytes()) && !receive_put(crew, peer, puts[i], epoch, is_packed, some)) good = false;
    });
    if (workers.index == 0) {
      for (std::uint32_t i = 0; i < count; ++i)
        if (!puts[i].staged() && !is_packed)
          used = puts[i].payload() + static_cast<std::uint32_t>((puts[i].bytes() + 7) / 8);
    }
  }
  if (workers.index == 0) scrub(peer.ring, epoch, used, is_single ? 0 : header.direct_parts());
  return good;
}

/// What a target does for one origin: all of the crew, when has_arrived gave it the header.
template <class Crew>
MPIX_STEP bool receive(const Crew& crew, const ReceivePeer& peer, std::uint64_t epoch, Header header,
                       typename Crew::Descriptors& descriptors) {
  return peer.relayed ? unpack(crew, peer, epoch, Arrival{header.word}, descriptors)
                      : receive_slot(crew, peer, epoch, header, descriptors);
}

}  // namespace mpix
