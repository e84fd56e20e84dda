// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>

#include "gpu/vendor/arguments.h"
#include "gpu/vendor/long_wait.h"
#include "kernels/protocol.h"

/// The GPU's way to run a program: a grid of parts × peers. Block (part, i) does its part of the i-th send, then
/// its part of the i-th receive. Sends wait only for what peers have enqueued before (kernels/program.h), so no
/// block's wait keeps another rank's block from what this one waits for.
///
/// What a small epoch costs is its chain of dependent loads, some 0.5 µs each, so:
/// - tables of few entries travel in the kernel's arguments (arguments.h), not in device memory;
/// - every thread polls by itself: no barrier between the look at a word and the data;
/// - the header of the usual epoch says all about its one put;
/// - loads are issued before the first of them is used;
/// - the usual epoch, one put of whole words through the mailbox, a word a thread, has a kernel of its own: short
///   straight code in few registers;
/// - where the kernel in front in the stream is known to be ours, work starts before that one has ended (Early).
namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr unsigned most_threads = 512;

/// Poll until ready(); false when the wait was released. Now and then the host is told what `peer` is waited for.
template <class Peer, class Ready>
__device__ inline bool poll(const Program& program, const Peer& peer, Ready ready) {
  for (std::uint32_t polls = 1; !ready(); ++polls)
    if (polls % polls_between_notes == 0 && !wait_on(program, peer, polls / polls_between_notes)) return false;
  return true;
}

/// What words of a peer say, to all threads of the block. Those of a relayed one lie in memory of the host, and there each
/// thread's look at the same word is a trip of its own, one behind the other: 28 ns on an H200, 0.2 ms for the threads of
/// a put of 64 KiB. So one thread looks for all. Once in a kernel for each `look_now`.
template <Reach reach, class Seen, class Look>
__device__ inline Seen look(bool relayed, Look look_now) {
  if constexpr (reach == Reach::relayed) {
    if (relayed) {
      __shared__ Seen seen;
      if (threadIdx.x == 0) seen = look_now();
      __syncthreads();
      return seen;
    }
  }
  return look_now();
}

/// Where a part is: its last epoch, and, part 0, how many of all were replayed.
__device__ inline EpochCounter load_counter(const PartCounters& counters, std::uint32_t part) {
  return {part == 0 ? load_relaxed(&counters.replayed) : 0, load_relaxed(&counters.epochs[part])};
}

/// A part has done its epoch. Part 0 also counts for the parts that this launch does not have. After a barrier
/// of the block: each thread has read the counter by then.
__device__ inline void advance_part(PartCounters& counters, EpochCounter before, bool captured, std::uint32_t part,
                                    std::uint32_t parts) {
  const EpochCounter after = before.next(captured);
  if (part != 0) {
    if (threadIdx.x == 0) counters[part] = after.epochs;
    return;
  }
  // In one store of 16 bytes: the host may look at any time (Window::has_run_locked).
  if (threadIdx.x == 0) *reinterpret_cast<EpochCounter*>(&counters.replayed) = after;
  for (std::uint32_t other = parts + threadIdx.x; other < most_parts; other += blockDim.x) counters[other] = after.epochs;
}

/// The threads of a team by warps: small puts are shared out among warps, each to one.
struct Warps {
  std::uint32_t index, count;
  Team lanes;
};

__device__ inline Warps warps_of(Team team) {
  const std::uint32_t width = static_cast<std::uint32_t>(warpSize);
  return Warps{team.index / width, team.size / width, Team{team.index % width, width}};
}

// ---- sending -----------------------------------------------------------------------------------------

__device__ inline void send_lines(const PutOp& op, Line* payload, std::uint32_t flag, Team team) {
  constexpr std::uint32_t batch = 4;
  const std::uint32_t words = static_cast<std::uint32_t>((op.bytes + 7) / 8);
  for (std::uint32_t first = team.index; first < words; first += batch * team.size) {
    std::uint64_t word[batch];
#pragma unroll
    for (std::uint32_t i = 0; i < batch; ++i)
      if (first + i * team.size < words) word[i] = load_word(op.source, first + i * team.size, op.bytes);
#pragma unroll
    for (std::uint32_t i = 0; i < batch; ++i)
      if (first + i * team.size < words) write_line(payload + first + i * team.size, word[i], flag);
  }
}

__device__ inline void send_put(const PutOp& op, Line* slot, std::uint32_t flag, Team team) {
  if (op.descriptor != 0 && team.index == 0) write_descriptor(op, slot, flag);
  if (op.direct)
    copy_bytes(op.direct, op.source, op.bytes, team);
  else
    send_lines(op, slot + op.payload, flag, team);
}

template <class AnyProgram>
__device__ inline void send_puts(const AnyProgram& any, const SendPeer& peer, Line* slot, std::uint32_t flag, Team team) {
  if (peer.op_count == 1) {
    send_put(any.op(peer.first_op), slot, flag, team);
    return;
  }
  if (peer.bytes > most_bytes_of_a_warp)
    for (std::uint32_t i = 0; i < peer.op_count; ++i) {
      const PutOp& op = any.op(peer.first_op + i);
      if (op.bytes > most_bytes_of_a_warp) send_put(op, slot, flag, team);
    }
  const Warps warps = warps_of(team);
  for (std::uint32_t i = warps.index; i < peer.op_count; i += warps.count) {
    const PutOp& op = any.op(peer.first_op + i);
    if (op.bytes <= most_bytes_of_a_warp) send_put(op, slot, flag, warps.lanes);
  }
}

/// `usual`: so is this send, says the host (Shape::is_usual).
template <bool usual, Reach reach, class AnyProgram>
__device__ inline void send_part(const AnyProgram& any, std::uint32_t index, std::uint32_t part, std::uint32_t parts,
                                 const Shape& shape) {
  const SendPeer& peer = any.send(index);
  PairWords* words = peer.words;
  const Team team{part * blockDim.x + threadIdx.x, parts * blockDim.x};
  if (!shape.early.send) gpu_wait_for_front();
  // All loads at once; each is half a microsecond.
  struct Seen {
    std::uint64_t posted;
    EpochCounter sent;
  };
  const Seen seen = look<reach, Seen>(peer.relayed, [&] { return Seen{load_relaxed(&words->posted), load_counter(words->own.sent, part)}; });
  const EpochCounter before = seen.sent;
  const std::uint64_t epoch = before.epochs + 1;
  if (!shape.early.sources) gpu_wait_for_front();
  gpu_let_next_start();
  std::uint64_t word = 0;
  bool has_word = false;
  if (usual) {
    const PutOp& op = any.op(peer.first_op);
    has_word = team.index < op.bytes / 8;
    if (has_word) word = load_once(reinterpret_cast<const unsigned long long*>(op.source) + team.index);
  }
  const std::uint64_t needed = post_needed(peer, epoch);
  const auto is_posted = [&] { return load_relaxed(&words->posted) >= needed; };
  bool go = seen.posted >= needed;
  if (usual) {
    go = go || poll(any.program, peer, is_posted);
  } else {
    // Direct data often finds the post still under way, and has many threads: were all of them to look for it, they
    // would hold up the word's memory, and with it the post.
    if (threadIdx.x == 0) go = go || poll(any.program, peer, is_posted);
    go = !__syncthreads_or(threadIdx.x == 0 && !go);
  }
  Line* slot = slot_of(peer.ring, epoch);
  const std::uint32_t flag = flag_of(epoch);
  if (go) {
    if (team.index == 0 && peer.signals && !peer.awaits_post) write_header(peer, epoch, 0, 0);
    if (usual) {
      if (has_word) write_line(slot + Header::single_payload + team.index, word, flag);
    } else {
      send_puts(any, peer, slot, flag, team);
    }
  }
  const bool released = __syncthreads_or(!go);
  if (!peer.signals || (released && epoch > retired_epoch)) return;
  if (!usual && !released && peer.awaits_post && threadIdx.x == 0) write_header(peer, epoch, part, parts);
  if (any.program.guards && !released && threadIdx.x == 0) count_sent(words, peer.there, part, parts);
  advance_part(words->own.sent, before, any.program.captured, part, parts);
}

// ---- receiving ---------------------------------------------------------------------------------------

__device__ inline void receive_lines(const Line* payload, std::uint32_t flag, char* to, std::uint32_t bytes, Team team) {
  constexpr std::uint32_t batch = 4;
  const std::uint32_t words = (bytes + 7) / 8;
  for (std::uint32_t first = team.index; first < words; first += batch * team.size) {
    std::uint64_t word[batch];
    bool there[batch];
#pragma unroll
    for (std::uint32_t i = 0; i < batch; ++i)
      there[i] = first + i * team.size < words && line_arrived(payload + first + i * team.size, flag, &word[i]);
#pragma unroll
    for (std::uint32_t i = 0; i < batch; ++i) {
      const std::uint32_t at = first + i * team.size;
      if (at >= words) continue;
      if (!there[i]) word[i] = read_line(payload + at, flag);
      store_word(to, at, bytes, word[i]);
    }
  }
}

__device__ inline void receive_data(const ReceivePeer& peer, const Descriptor& put, const Line* slot, std::uint32_t flag,
                                    Team team) {
  char* to = peer.window + put.offset;
  if (put.staged())
    copy_bytes(to, peer.staging + put.offset, put.bytes(), team);
  else
    receive_lines(slot + put.payload(), flag, to, static_cast<std::uint32_t>(put.bytes()), team);
}

/// An epoch of any kind; its first header has arrived. All threads of the block. Out of the way of the usual epoch,
/// and with few arguments, so that it costs that one no registers: `peer` lies in shared memory.
GPU_OUT_OF_LINE void receive_any(const ReceivePeer& peer, std::uint64_t epoch, Header header, std::uint32_t part,
                                 std::uint32_t parts) {
  const Team team{part * blockDim.x + threadIdx.x, parts * blockDim.x};
  constexpr std::uint32_t chunk = 64;  // as many threads as the smallest block has, and as there are parts
  static_assert(chunk >= most_parts, "each thread looks at one header");
  __shared__ Descriptor puts[chunk];
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);
  if (!header.is_single() && header.direct_parts() > 0) {
    if (threadIdx.x < header.direct_parts()) {
      (void)read_line(slot + header_line(peer.ring, threadIdx.x), flag);
      fence_acquire();
    }
    __syncthreads();
  }
  if (header.is_single()) {
    receive_data(peer, single_put(header), slot, flag, team);
    if (team.index == 0) scrub(peer.ring, epoch, Header::single_payload + (header.single_bytes() + 7) / 8, 0);
    return;
  }
  std::uint32_t used = 1 + 2 * header.descriptors();
  for (std::uint32_t first = 0; first < header.descriptors(); first += chunk) {
    const std::uint32_t count = min(chunk, header.descriptors() - first);
    if (first > 0) __syncthreads();
    if (threadIdx.x < count) puts[threadIdx.x] = read_descriptor(slot, first + threadIdx.x, flag);
    __syncthreads();
    for (std::uint32_t i = 0; i < count; ++i)
      if (puts[i].bytes() > most_bytes_of_a_warp) receive_data(peer, puts[i], slot, flag, team);
    const Warps warps = warps_of(team);
    for (std::uint32_t i = warps.index; i < count; i += warps.count)
      if (puts[i].bytes() <= most_bytes_of_a_warp) receive_data(peer, puts[i], slot, flag, warps.lanes);
    if (team.index == 0)
      for (std::uint32_t i = 0; i < count; ++i)
        if (!puts[i].staged()) used = puts[i].payload() + static_cast<std::uint32_t>((puts[i].bytes() + 7) / 8);
  }
  if (team.index == 0) scrub(peer.ring, epoch, used, header.direct_parts());
}

template <Reach reach, class AnyProgram>
__device__ inline void receive_part(const AnyProgram& any, std::uint32_t index, std::uint32_t part, std::uint32_t parts,
                                    EpochCounter before) {
  const ReceivePeer& peer = any.receive(index);
  const std::uint64_t epoch = before.epochs + 1;
  const Team team{part * blockDim.x + threadIdx.x, parts * blockDim.x};
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);

  const Line* own_line = slot + Header::single_payload + team.index;
  std::uint64_t first_word = 0;
  const auto has_header = [&] { return line_arrived(slot, flag, &first_word); };
  bool arrived = false;
  if (reach == Reach::relayed && peer.relayed) {
    struct Seen {
      bool arrived;
      std::uint64_t word;
    };
    const Seen seen = look<reach, Seen>(true, [&] { return Seen{poll(any.program, peer, has_header), first_word}; });
    arrived = seen.arrived;
    first_word = seen.word;
  } else {
    arrived = poll(any.program, peer, has_header);
  }
  gpu_wait_for_front();
  gpu_let_next_start();
  const Header header{first_word};
  bool usual = false;
  if (arrived && header.is_single()) {
    auto* to = reinterpret_cast<std::uint64_t*>(peer.window + header.single_offset());
    const std::uint32_t bytes = header.single_bytes();
    usual = (reinterpret_cast<std::uintptr_t>(to) | bytes) % 8 == 0 && bytes / 8 <= team.size;
    if (usual && team.index < bytes / 8) to[team.index] = read_line(own_line, flag);
    if (usual && team.index == 0) scrub(peer.ring, epoch, Header::single_payload + bytes / 8, 0);
  }
  // All threads see the same epoch, but a wait may be released for some and not for others.
  const bool released = __syncthreads_or(!arrived);
  if (released && epoch > retired_epoch) return;
  if (!usual && !released) {
    __shared__ ReceivePeer shared;
    if (threadIdx.x == 0) shared = peer;
    __syncthreads();
    receive_any(shared, epoch, header, part, parts);
    __syncthreads();
  }
  if (any.program.guards && !released && threadIdx.x == 0) count_received(peer.words, part);
  advance_part(peer.words->own.closed, before, any.program.captured, part, parts);
}

// ---- kernels -----------------------------------------------------------------------------------------

template <Role role, bool usual, Reach reach, class AnyProgram>
__global__ void __launch_bounds__(most_threads, 2) run_program(const GPU_GRID_CONSTANT Arguments<AnyProgram> arguments) {
  const AnyProgram& any = arguments.any;
  const Shape& shape = arguments.shape;
  const Program& program = any.program;
  const std::uint32_t part = blockIdx.x, index = blockIdx.y;
  const bool may_send_here = role != Role::receive && (role == Role::send || blockIdx.z == 0);
  const bool may_receive_here = role != Role::send && (role == Role::receive || blockIdx.z == 1);
  const std::uint32_t send_parts = index < program.send_count ? shape.parts_of(any.send(index)) : 0;
  const std::uint32_t receive_parts = index < program.receive_count ? any.receive_parts(index, shape) : 0;
  const bool sends = may_send_here && part < send_parts, receives = may_receive_here && part < receive_parts;
  EpochCounter closed{};
  if (receives) {
    if (!shape.early.receive) gpu_wait_for_front();
    const ReceivePeer& peer = any.receive(index);
    closed = look<reach, EpochCounter>(peer.relayed, [&] { return load_counter(peer.words->own.closed, part); });
  }
  if (part == 0 && index == 0 && blockIdx.z == 0 && program.post_count > 0) {
    gpu_wait_for_front();
    // By the last warps, which have least to do besides: the first must not wait for these counters.
    for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < program.post_count; i += blockDim.x)
      announce(any.post(i), any.post(i).words->own.opened.load(), program.captured, program.guards);
  }
  if (program.guards && part == 0 && index == 0 && threadIdx.x == 0) {
    if (program.send_count > 0) program.guards->targets = 0;
    if (program.receive_count > 0) program.guards->origins = 0;
  }
  if (sends) send_part<usual, reach>(any, index, part, send_parts, shape);
  if (receives) receive_part<reach>(any, index, part, receive_parts, closed);
  // A kernel does not end before those in front of it. Blocks without work need not keep their place for that.
  if (sends || receives || (part == 0 && index == 0 && blockIdx.z == 0)) gpu_wait_for_front();
}

__global__ void __launch_bounds__(NearPosts::most) run_posts(const GPU_GRID_CONSTANT NearPosts near) {
  if (!near.early) gpu_wait_for_front();
  gpu_let_next_start();
  const bool posts = threadIdx.x < near.count;
  EpochCounter opened{};
  if (posts) opened = near.posts[threadIdx.x].words->own.opened.load();
  if (near.early) gpu_wait_for_front();
  if (posts) announce(near.posts[threadIdx.x], opened, near.captured, near.guarded);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
