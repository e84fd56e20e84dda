// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>

#include "wire/program.h"

/// What the kernels of a GPU get as arguments.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// A put up to this size is one warp's work, where an epoch has several for one peer.
constexpr std::uint64_t most_bytes_of_a_warp = 2048;

/// What a kernel may do before the kernel in front of it in the stream has ended. Only a captured stream tells
/// which kernel that is. Our kernels let the next one start when all in front of themselves have ended, or all
/// but a post. So when one of ours is in front, everything before that one (and perhaps a post) has ended:
///
/// | in front  | may still change                     | so at once                                       |
/// |-----------|--------------------------------------|--------------------------------------------------|
/// | a post    | `opened`; peers' `posted`            | everything                                       |
/// | a send    | `sent`; peers' slots and windows     | a receive reads its counters and polls           |
/// | a receive | `closed`; this rank's window         | a send reads its counters and looks for the post; a post reads `opened` |
/// | both, small | both of it                         | a post reads `opened`                            |
/// | another   | anything                             | nothing                                          |
///
/// A receive that carries posts is another. Behind a receive or both, a post lets the next kernel start at once, so
/// that its blocks are there when the post ends. That kernel may find running what is in front of the post: to it, such
/// a post is another. (It saved 0.3 to 0.6 of 3.2 to 4.4 µs an epoch.)
struct Early {
  bool send;     ///< read `sent` and `posted`
  bool sources;  ///< read what puts send
  bool receive;  ///< read `closed`, and poll
};

/// What a kernel is for: each role has kernels of its own, of less code and in fewer registers.
enum class Role { send, receive, both };

/// Whether some of its peers may be relayed, or parts of it have to leave as places are few (places.h): any. What these
/// need takes code, which cost a captured epoch on one node 0.14 µs of 2.7. Nobody gains by kernels of this kind for
/// small programs. Sends to relayed peers are never usual: there one thread looks for all.
enum class Reach { node, any };

/// Where words lie in memory of the host, the reads of one word by several blocks go one after another, 0.9 µs each on
/// an H200, and each part has some five to read: with 32 parts 178 KB took 160 µs to receive, with 2 it is 27. Eight
/// blocks fill PCIe (50 GB/s).
constexpr std::uint32_t relayed_bytes_of_a_part = 128 * 1024, most_relayed_parts = 4;

/// What a kernel has straight code for: single puts of whole words through the mailbox. one: in lines, one for each
/// thread. few: in lines or packs, a few for each, or for each eight. any: nothing.
enum class Form { any, one, few };
/// That few.
constexpr std::uint32_t most_each = 4;

/// How the data of one peer are dealt out. Of what it receives from that one a launch only knows what is likely: that
/// is looked for at once, together with the header.
struct Share {
  std::uint16_t parts;
  std::uint8_t each;  ///< lines for each thread, at most most_each; or packs for each eight
  bool packed;
};

/// At most so many.
MPIX_FN std::uint32_t parts_for(std::uint64_t bytes, std::uint32_t bytes_of_a_part, std::uint32_t most) {
  const std::uint64_t parts = (bytes + bytes_of_a_part - 1) / bytes_of_a_part;
  return static_cast<std::uint32_t>(parts < 1 ? 1 : parts > most ? most : parts);
}

/// How a launch is cut into blocks: a grid of parts × peers; twice that for both roles, sends first.
struct Shape {
  std::uint32_t receive_parts;           ///< the most for one peer
  std::uint32_t eager_bytes_of_a_part;   ///< of a send through the mailbox alone, in lines, and
  std::uint32_t packed_bytes_of_a_part;  ///< in packs
  std::uint32_t direct_bytes_of_a_part;  ///< of one where something goes direct
  std::uint32_t most_parts;              ///< for one peer
  Early early;

  MPIX_FN std::uint32_t parts_of(const SendPeer& peer) const {
    if (peer.relayed) return parts_for(peer.bytes, relayed_bytes_of_a_part, most_of(true));
    return parts_for(peer.bytes,
                     peer.awaits_post          ? direct_bytes_of_a_part
                     : peer.header.is_packed() ? packed_bytes_of_a_part
                                               : eager_bytes_of_a_part,
                     most_parts);
  }
  MPIX_FN std::uint32_t parts_of(const ReceivePeer& peer, std::uint64_t bytes, bool is_packed) const {
    return parts_for(bytes,
                     peer.relayed ? relayed_bytes_of_a_part
                     : is_packed  ? packed_bytes_of_a_part
                                  : eager_bytes_of_a_part,
                     most_of(peer.relayed));
  }
  MPIX_FN std::uint32_t most_of(bool relayed) const {
    return relayed && most_parts > most_relayed_parts ? most_relayed_parts : most_parts;
  }

  Form form_of(const SendPeer& peer, const PutOp* ops, unsigned threads) const {
    if (!peer.header.is_single() || peer.awaits_post || peer.relayed) return Form::any;
    const PutOp& op = ops[peer.first_op];
    if ((reinterpret_cast<std::uintptr_t>(op.source) | op.bytes) % 8 != 0) return Form::any;
    const std::uint64_t all = std::uint64_t{threads} * parts_of(peer);
    if (peer.header.is_packed())
      return packs_for(static_cast<std::uint32_t>(op.bytes)) <= most_each * all / Pack::lanes ? Form::few : Form::any;
    return op.bytes / 8 <= all ? Form::one : op.bytes / 8 <= most_each * all ? Form::few : Form::any;
  }
};

/// The posts of a program, for a kernel that does nothing else.
struct NearPosts {
  static constexpr std::uint32_t most = 8;
  std::uint32_t count;
  bool captured, guarded, raises;
  bool early = false;  ///< read `opened`, and let the next kernel start, before the one in front has ended
  PostPeer posts[most];
};

struct NearRaises {
  static constexpr std::uint32_t most = 64;
  std::uint32_t count;
  struct {
    std::uint64_t* posted;
    std::uint64_t epochs;
  } raises[most];
};

/// A program whose tables lie in device memory.
struct FarProgram {
  Program program;
  MPIX_FN const PostPeer& post(std::uint32_t i) const { return program.tables.posts[i]; }
  MPIX_FN const SendPeer& send(std::uint32_t i) const { return program.tables.sends[i]; }
  MPIX_FN const ReceivePeer& receive(std::uint32_t i) const { return program.tables.receives[i]; }
  MPIX_FN const PutOp& op(std::uint32_t i) const { return program.tables.ops[i]; }
  MPIX_FN const PutOp* puts() const { return program.tables.ops; }
  MPIX_FN Share share_of_send(std::uint32_t i, const Shape& shape) const {
    return {static_cast<std::uint16_t>(shape.parts_of(send(i))), most_each, send(i).header.is_packed()};
  }
  MPIX_FN Share share_of_receive(std::uint32_t i, const Shape& shape) const {
    const std::uint32_t most = shape.most_of(receive(i).relayed);
    return {static_cast<std::uint16_t>(shape.receive_parts < most ? shape.receive_parts : most), 1, false};
  }
};

/// A program whose tables travel in the arguments of its kernel.
template <std::uint32_t most_peers, std::uint32_t most_ops>
struct NearProgram {
  Program program;
  PostPeer posts[most_peers];
  SendPeer sends[most_peers];
  ReceivePeer receives[most_peers];
  PutOp ops[most_ops];
  Share sent[most_peers], expected[most_peers];
  MPIX_FN const PostPeer& post(std::uint32_t i) const { return posts[i]; }
  MPIX_FN const SendPeer& send(std::uint32_t i) const { return sends[i]; }
  MPIX_FN const ReceivePeer& receive(std::uint32_t i) const { return receives[i]; }
  MPIX_FN const PutOp& op(std::uint32_t i) const { return ops[i]; }
  MPIX_FN const PutOp* puts() const { return ops; }
  MPIX_FN Share share_of_send(std::uint32_t i, const Shape&) const { return sent[i]; }
  MPIX_FN Share share_of_receive(std::uint32_t i, const Shape&) const { return expected[i]; }

  static bool fits(const Program& program) {
    return std::max({program.post_count, program.send_count, program.receive_count}) <= most_peers &&
           program.op_count <= most_ops;
  }

  NearProgram(const Program& from, const Tables& tables) : program(from) {
    std::copy_n(tables.posts, from.post_count, posts);
    std::copy_n(tables.sends, from.send_count, sends);
    std::copy_n(tables.receives, from.receive_count, receives);
    std::copy_n(tables.ops, from.op_count, ops);
  }
};

/// The one argument of a kernel that runs a program.
template <class AnyProgram>
struct Arguments {
  AnyProgram any;
  Shape shape;
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
