// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/guard.h"
#include "wire/program.h"

/// The steps of an epoch, each for one peer. A device's kernel maps peers to its blocks, or to a polling
/// loop, and calls them; the words they touch and the order argument are in program.h.
namespace mpix {

/// The flag of an epoch's lines: never 0, which marks a line that was never written or was scrubbed.
/// It repeats after 2^32 - 1 epochs; scrub() sees to it that no line survives that long.
MPIX_FN std::uint32_t flag_of(std::uint64_t epoch) { return static_cast<std::uint32_t>(epoch % 0xffffffffu) + 1; }

MPIX_FN Line* slot_of(const Ring& ring, std::uint64_t epoch) {
  return ring.lines + (epoch & (ring.depth - 1)) * ring.slot_lines;
}

// ---- target: post ----------------------------------------------------------------------------------

/// `before`: what own.opened is.
MPIX_FN void announce(const PostPeer& peer, EpochCounter before, bool captured = false, bool guarded = false) {
  const EpochCounter after = before.next(captured);
  if (after.epochs > retired_epoch) return;
  store_after_loads(&peer.there->posted, after.epochs);
  if (guarded) count_post(peer);
  // The host may see this before `posted` is there: a rank leaves its memory to nobody else before it has all posts
  // that are still to come (Window::has_all_posts).
  peer.words->own.opened = after;
}

// ---- origin: complete ------------------------------------------------------------------------------

/// Both the credit and the post: what `posted` has to be before a part may send its next epoch.
MPIX_FN std::uint64_t post_needed(const SendPeer& peer, std::uint64_t epoch) {
  if (peer.awaits_post) return epoch;
  return epoch >= peer.ring.depth ? epoch - peer.ring.depth + 1 : 0;
}

MPIX_FN bool may_send(const SendPeer& peer, std::uint32_t part = 0) {
  return load_before_stores(&peer.words->posted) >= post_needed(peer, peer.words->own.sent[part] + 1);
}

MPIX_FN void write_descriptor(const PutOp& op, Line* slot, std::uint32_t flag) {
  write_line(slot + op.descriptor, op.offset, flag);
  write_line(slot + op.descriptor + 1,
             op.direct ? op.bytes | Descriptor::staged_bit : op.bytes | static_cast<std::uint64_t>(op.payload) << 32,
             flag);
}

/// Write a put's part of slot `slot`, or its data into the target's window.
MPIX_FN void send_op(const PutOp& op, Line* slot, std::uint32_t flag, Workers workers) {
  if (op.descriptor != 0 && workers.index == 0) write_descriptor(op, slot, flag);
  if (op.direct) {
    copy_bytes(op.direct, op.source, op.bytes, workers);
    return;
  }
  Line* payload = slot + op.payload;
  for (std::size_t word = workers.index; word < (op.bytes + 7) / 8; word += workers.size)
    write_line(payload + word, load_word(op.source, word, op.bytes), flag);
}

/// Write the data of the next epoch. The epoch ends with write_header() and advance(). `ops(i)`: put i.
template <class Ops>
MPIX_FN void send(const SendPeer& peer, const Ops& ops, Workers workers) {
  const std::uint64_t epoch = peer.words->own.sent[0] + 1;
  const std::uint32_t flag = flag_of(epoch);
  Line* slot = slot_of(peer.ring, epoch);
  for (std::uint32_t i = 0; i < peer.op_count; ++i) send_op(ops(peer.first_op + i), slot, flag, workers);
}

/// The i-th header line: the first of the slot, or one of those at its end.
MPIX_FN std::uint32_t header_line(const Ring& ring, std::uint32_t i) { return i == 0 ? 0 : data_lines(ring) + i - 1; }

/// One thread of each part. Where something went direct: after the whole part has sent. Else the last part alone, at
/// any time, for the lines of an eager epoch validate themselves. The first header is that of the last part.
MPIX_FN void write_header(const SendPeer& peer, std::uint64_t epoch, std::uint32_t part, std::uint32_t parts) {
  Line* line = slot_of(peer.ring, epoch) + header_line(peer.ring, parts - 1 - part);
  if (peer.awaits_post)
    write_line_release(line, Header::of(peer.header.descriptors(), parts).word, flag_of(epoch));
  else
    write_line(line, peer.header.word, flag_of(epoch));
}

// ---- target: wait ----------------------------------------------------------------------------------

/// The first part has arrived.
MPIX_FN bool has_arrived(const ReceivePeer& peer) {
  const std::uint64_t epoch = peer.words->own.closed[0] + 1;
  std::uint64_t header;
  return line_arrived(slot_of(peer.ring, epoch), flag_of(epoch), &header);
}

/// Read a line that is on its way. The header has arrived, so its origin is past its waits and the line
/// is at most a store's latency away. (On a GPU other blocks write it, and those may have died: await_line of
/// device/gpu.)
MPIX_FN std::uint64_t read_line(const Line* line, std::uint32_t flag) {
  std::uint64_t data = 0;
  while (!line_arrived(line, flag, &data)) {
  }
  return data;
}

MPIX_FN Descriptor read_descriptor(const Line* slot, std::uint32_t index, std::uint32_t flag) {
  return Descriptor{read_line(slot + 1 + 2 * index, flag), read_line(slot + 2 + 2 * index, flag)};
}

MPIX_FN Descriptor single_put(Header header) {
  return Descriptor{header.single_offset(), header.single_bytes() | static_cast<std::uint64_t>(Header::single_payload)
                                                                        << 32};
}

/// Move the data of one put into the window.
MPIX_FN void receive_put(const ReceivePeer& peer, const Descriptor& put, const Line* slot, std::uint32_t flag,
                         Workers workers) {
  char* to = peer.window + put.offset;
  const std::uint64_t bytes = put.bytes();
  if (put.staged()) {
    copy_bytes(to, peer.staging + put.offset, bytes, workers);
    return;
  }
  const Line* payload = slot + put.payload();
  for (std::uint32_t word = workers.index; word < (bytes + 7) / 8; word += workers.size)
    store_word(to, word, bytes, read_line(payload + word, flag));
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

/// Move what arrived from a sender of one part into the window. The epoch ends with advance().
MPIX_FN void receive(const ReceivePeer& peer, Workers workers) {
  const std::uint64_t epoch = peer.words->own.closed[0] + 1;
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);
  const Header header{read_line(slot, flag)};
  if (header.is_single()) {
    receive_put(peer, single_put(header), slot, flag, workers);
    if (workers.index == 0) scrub(peer.ring, epoch, Header::single_payload + (header.single_bytes() + 7) / 8, 0);
    return;
  }
  std::uint32_t used = 1 + 2 * header.descriptors();
  for (std::uint32_t i = 0; i < header.descriptors(); ++i) {
    const Descriptor put = read_descriptor(slot, i, flag);
    receive_put(peer, put, slot, flag, workers);
    if (!put.staged()) used += static_cast<std::uint32_t>((put.bytes() + 7) / 8);
  }
  if (workers.index == 0) scrub(peer.ring, epoch, used, header.direct_parts());
}

/// One part has done its epoch. A store that the service may see at any time.
MPIX_FN void advance(std::uint64_t* counter) { store_after_loads(counter, *counter + 1); }

}  // namespace mpix
