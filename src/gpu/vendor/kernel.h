// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>

#include "kernels/protocol.h"

/// The GPU's way to run a program: blocks split over peers, and for much data several blocks a peer (parts).
///
/// Blocks of sends come first in the grid. Blocks start in the order of their index, so no block that waits
/// for a peer's data can keep this rank's own sends from running; and sends wait only for what peers have
/// enqueued before (kernels/program.h).
///
/// What a small epoch costs is its chain of dependent loads, some 0.5 µs each, so:
/// - tables of few entries travel in the kernel's arguments (NearProgram), not in device memory;
/// - every thread polls by itself: no barrier between the look at a word and the data;
/// - the receiver loads the header, the first descriptor and its own payload line at once (receive_single).
namespace mpix {

constexpr unsigned most_threads = 512;
constexpr std::uint32_t polls_between_looks_at_release = 4096;

struct Parts {
  std::uint32_t send;     ///< blocks for each send
  std::uint32_t receive;  ///< and for each receive
};

/// A program whose tables lie in device memory.
struct FarProgram {
  Program program;
  __device__ const PostPeer& post(std::uint32_t i) const { return program.tables.posts[i]; }
  __device__ const SendPeer& send(std::uint32_t i) const { return program.tables.sends[i]; }
  __device__ const ReceivePeer& receive(std::uint32_t i) const { return program.tables.receives[i]; }
  __device__ const PutOp& op(std::uint32_t i) const { return program.tables.ops[i]; }
};

/// A program whose tables travel in the arguments of its kernel.
struct NearProgram {
  static constexpr std::uint32_t most = 8;
  Program program;
  PostPeer posts[most];
  SendPeer sends[most];
  ReceivePeer receives[most];
  PutOp ops[most];
  __device__ const PostPeer& post(std::uint32_t i) const { return posts[i]; }
  __device__ const SendPeer& send(std::uint32_t i) const { return sends[i]; }
  __device__ const ReceivePeer& receive(std::uint32_t i) const { return receives[i]; }
  __device__ const PutOp& op(std::uint32_t i) const { return ops[i]; }

  static bool fits(const Program& program) {
    return program.post_count <= most && program.send_count <= most && program.receive_count <= most &&
           program.op_count <= most;
  }

  void copy(const Program& from, const Tables& tables) {
    program = from;
    std::copy_n(tables.posts, from.post_count, posts);
    std::copy_n(tables.sends, from.send_count, sends);
    std::copy_n(tables.receives, from.receive_count, receives);
    std::copy_n(tables.ops, from.op_count, ops);
  }
};
static_assert(sizeof(NearProgram) < 4000, "kernel arguments have 4 KiB");

__device__ inline bool is_released(const HostWords* host) {
  return *const_cast<volatile const std::uint32_t*>(&host->released) != 0;
}

/// Poll until ready(); false when the wait was released.
template <class Ready>
__device__ inline bool poll(const HostWords* host, Ready ready) {
  for (std::uint32_t polls = 1; !ready(); ++polls)
    if (polls % polls_between_looks_at_release == 0 && is_released(host)) return false;
  return true;
}

/// True for exactly one of the `parts` blocks: the last to come here. Only thread 0 asks, after a barrier of its
/// block. What blocks have *loaded* before it has been loaded; `stores` of theirs must be ordered by a fence.
__device__ inline bool is_last(std::uint32_t* arrived, std::uint32_t parts, bool stores) {
  if (parts == 1) return true;
  if (stores) gpu_fence_system();
  if (atomicAdd(arrived, 1u) != parts - 1) return false;
  *arrived = 0;
  return true;
}

template <class AnyProgram>
__device__ inline void send_block(const AnyProgram& any, std::uint32_t index, std::uint32_t part, std::uint32_t parts) {
  const SendPeer& peer = any.send(index);
  const bool go = poll(any.program.host, [&] { return may_send(peer); });
  if (go) {
    if (part == 0 && threadIdx.x == 0 && peer.signals && !peer.awaits_post) write_header(peer);
    send(peer, [&](std::uint32_t i) -> const PutOp& { return any.op(i); },
         Team{part * blockDim.x + threadIdx.x, parts * blockDim.x});
  }
  if (__syncthreads_or(!go)) return;
  if (threadIdx.x != 0 || !is_last(&peer.words->own.sending, parts, peer.awaits_post) || !peer.signals) return;
  if (peer.awaits_post) write_header(peer);
  advance(peer);
}

/// The epoch of one put through the mailbox, as most are. False when this epoch is another kind.
/// The header has been seen by nobody yet: what may follow it is loaded along with it.
__device__ inline bool receive_single(const HostWords* host, const ReceivePeer& peer, Team team, bool* arrived) {
  const std::uint64_t epoch = peer.words->own.closed + 1;
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);
  constexpr std::uint32_t payload = 3;
  const bool has_line = payload + team.index < peer.ring.slot_lines;
  std::uint64_t header = 0, offset = 0, size = 0, word = 0;
  bool offset_there = false, size_there = false, word_there = false;
  *arrived = poll(host, [&] {
    offset_there = line_arrived(slot + 1, flag, &offset);
    size_there = line_arrived(slot + 2, flag, &size);
    word_there = has_line && line_arrived(slot + payload + team.index, flag, &word);
    return line_arrived(slot, flag, &header);
  });
  if (!*arrived) return true;
  if (header != 1) return false;
  if (!offset_there) offset = read_line(slot + 1, flag);
  if (!size_there) size = read_line(slot + 2, flag);
  const std::uint32_t words = static_cast<std::uint32_t>((size + 7) / 8);
  char* to = peer.window + offset;
  if (team.index < words) {
    if (!word_there) word = read_line(slot + payload + team.index, flag);
    store_word(to, team.index, size, word);
  }
  for (std::uint32_t i = team.index + team.size; i < words; i += team.size)
    store_word(to, i, size, read_line(slot + payload + i, flag));
  if (team.index == 0) scrub(peer.ring, epoch, payload + words);
  return true;
}

template <class AnyProgram>
__device__ inline void receive_block(const AnyProgram& any, std::uint32_t index, std::uint32_t part,
                                     std::uint32_t parts) {
  const ReceivePeer& peer = any.receive(index);
  const Team team{part * blockDim.x + threadIdx.x, parts * blockDim.x};
  bool arrived = false;
  if (!receive_single(any.program.host, peer, team, &arrived)) receive(peer, team);
  if (__syncthreads_or(!arrived)) return;
  if (threadIdx.x == 0 && is_last(&peer.words->own.receiving, parts, false)) acknowledge(peer);
}

template <class AnyProgram>
__global__ void __launch_bounds__(most_threads) run_program(const GPU_GRID_CONSTANT AnyProgram any, Parts parts) {
  gpu_wait_for_previous();
  const Program& program = any.program;
  if (blockIdx.x == 0)
    for (std::uint32_t i = threadIdx.x; i < program.post_count; i += blockDim.x) announce(any.post(i));
  const std::uint32_t send_blocks = program.send_count * parts.send;
  if (blockIdx.x < send_blocks) {
    send_block(any, blockIdx.x / parts.send, blockIdx.x % parts.send, parts.send);
    return;
  }
  const std::uint32_t block = blockIdx.x - send_blocks;
  if (block < program.receive_count * parts.receive)
    receive_block(any, block / parts.receive, block % parts.receive, parts.receive);
}

}  // namespace mpix
