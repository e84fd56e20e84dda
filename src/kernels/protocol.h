// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "kernels/program.h"

/// The steps of an epoch, each for one peer. A device's kernel maps peers to its blocks, or to a polling
/// loop, and calls them; the words they touch and the order argument are in program.h.
namespace mpix {

/// The flag of an epoch's lines: never 0, which marks a line that was never written or was scrubbed.
/// It repeats after 2^32 - 1 epochs; scrub() sees to it that no line survives that long.
MPIX_FN std::uint32_t flag_of(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch % 0xffffffffu) + 1;
}

MPIX_FN Line* slot_of(const Ring& ring, std::uint64_t epoch) {
  return ring.lines + (epoch & (ring.depth - 1)) * ring.slot_lines;
}

// ---- target: post ----------------------------------------------------------------------------------

MPIX_FN void announce(const PostPeer& peer) {
  const std::uint64_t epoch = peer.words->own.opened + 1;
  peer.words->own.opened = epoch;
  store_after_loads(peer.posted, epoch);
}

// ---- origin: complete ------------------------------------------------------------------------------

/// The slot of the next epoch is free again, as far as the target told.
MPIX_FN bool has_credit(const SendPeer& peer) {
  return load_before_stores(&peer.words->acknowledged) + peer.ring.depth >= peer.words->own.sent + 1;
}

MPIX_FN bool is_exposed(const SendPeer& peer) {
  return load_before_stores(&peer.words->posted) >= peer.words->own.sent + 1;
}

MPIX_FN bool may_send(const SendPeer& peer) {
  return has_credit(peer) && (!peer.awaits_post || is_exposed(peer));
}

/// Write a put's part of slot `slot`, or its data into the target's window.
MPIX_FN void send_op(const PutOp& op, Line* slot, std::uint32_t flag, Team team) {
  if (op.descriptor != 0 && team.index == 0) {
    write_line(slot + op.descriptor, op.offset, flag);
    write_line(slot + op.descriptor + 1, op.bytes | (op.direct ? staged_bit : 0), flag);
  }
  if (op.direct) {
    copy_bytes(op.direct, op.source, op.bytes, team);
    return;
  }
  Line* payload = slot + op.payload;
  for (std::size_t word = team.index; word < (op.bytes + 7) / 8; word += team.size)
    write_line(payload + word, load_word(op.source, word, op.bytes), flag);
}

/// Write the data of the next epoch. The epoch ends with write_header() and advance(). `ops(i)`: put i.
template <class Ops>
MPIX_FN void send(const SendPeer& peer, const Ops& ops, Team team) {
  const std::uint64_t epoch = peer.words->own.sent + 1;
  const std::uint32_t flag = flag_of(epoch);
  Line* slot = slot_of(peer.ring, epoch);
  for (std::uint32_t i = 0; i < peer.op_count; ++i) send_op(ops(peer.first_op + i), slot, flag, team);
}

/// One thread. Where something went direct: after the whole team has returned from send(). Else at any time,
/// for the lines of an eager epoch validate themselves.
MPIX_FN void write_header(const SendPeer& peer) {
  const std::uint64_t epoch = peer.words->own.sent + 1;
  Line* header = slot_of(peer.ring, epoch);
  if (peer.awaits_post)
    write_line_release(header, peer.descriptors | direct_bit, flag_of(epoch));
  else
    write_line(header, peer.descriptors, flag_of(epoch));
}

/// One thread, after the whole team has returned from send().
MPIX_FN void advance(const SendPeer& peer) { ++peer.words->own.sent; }

// ---- target: wait ----------------------------------------------------------------------------------

MPIX_FN bool has_arrived(const ReceivePeer& peer) {
  const std::uint64_t epoch = peer.words->own.closed + 1;
  std::uint64_t header;
  return line_arrived(slot_of(peer.ring, epoch), flag_of(epoch), &header);
}

/// Read a line that is on its way. The header has arrived, so its origin is past its waits and the line
/// is at most a store's latency away.
MPIX_FN std::uint64_t read_line(const Line* line, std::uint32_t flag) {
  std::uint64_t data = 0;
  while (!line_arrived(line, flag, &data)) {
  }
  return data;
}

/// How many rounds of a slot there are to each line that is wiped: a wipe touches a cold line.
constexpr std::uint32_t rounds_per_scrub = 16;

/// Now and then wipe one line of the slot that this epoch did not use, each in turn. So every line is either
/// rewritten or wiped within rounds_per_scrub × depth × slot_lines epochs (at most 2^28), and none is left to
/// carry the right flag when flags repeat, after 2^32.
MPIX_FN void scrub(const Ring& ring, std::uint64_t epoch, std::uint32_t used) {
  const std::uint64_t round = epoch / ring.depth;
  if (round % rounds_per_scrub != 0) return;
  const std::uint32_t line = 1 + static_cast<std::uint32_t>((round / rounds_per_scrub) % (ring.slot_lines - 1));
  if (line < used) return;
  write_line(slot_of(ring, epoch) + line, 0, 0);
  // acknowledge() orders loads alone, and here is a store: were it late, it would wipe a line of epoch + depth.
  fence_stores();
}

/// Move what arrived into the window. The epoch ends with acknowledge().
MPIX_FN void receive(const ReceivePeer& peer, Team team) {
  const std::uint64_t epoch = peer.words->own.closed + 1;
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);
  const std::uint64_t header = read_line(slot, flag);
  if (header & direct_bit) fence_acquire();
  const std::uint32_t descriptors = static_cast<std::uint32_t>(header);
  std::uint32_t next = 1 + 2 * descriptors;
  for (std::uint32_t i = 0; i < descriptors; ++i) {
    const std::uint64_t offset = read_line(slot + 1 + 2 * i, flag);
    const std::uint64_t size = read_line(slot + 2 + 2 * i, flag);
    const std::uint64_t bytes = size & ~staged_bit;
    char* to = peer.window + offset;
    if (size & staged_bit) {
      copy_bytes(to, peer.staging + offset, bytes, team);
      continue;
    }
    const std::uint32_t words = static_cast<std::uint32_t>((bytes + 7) / 8);
    for (std::uint32_t word = team.index; word < words; word += team.size)
      store_word(to, word, bytes, read_line(slot + next + word, flag));
    next += words;
  }
  if (team.index == 0) scrub(peer.ring, epoch, next);
}

/// One thread, after the whole team has returned from receive().
MPIX_FN void acknowledge(const ReceivePeer& peer) {
  const std::uint64_t epoch = peer.words->own.closed + 1;
  peer.words->own.closed = epoch;
  store_after_loads(peer.acknowledged, epoch);
}

}  // namespace mpix
