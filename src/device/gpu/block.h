// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/arguments.h"
#include "device/gpu/long_wait.h"
#include "wire/protocol.h"

/// How a block waits, and does a part's steps (wire/protocol.h).
namespace mpix {
inline namespace GPU_NAMESPACE {

/// How a thread's wait has gone: given up, as it is released or its part may leave; or for what it waited is there.
enum class Waited { gave_up, late, soon };

/// Poll until ready(). Now and then the host is told what `peer` is waited for.
template <Reach reach, class Peer, class Ready>
__device__ inline Waited poll(const Program& program, const Peer& peer, const Turn& turn, Ready ready) {
  std::uint64_t polls = 1;
  for (; !ready(); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = beat_of(polls);
    if (reach == Reach::any ? !goes_on(program, peer, turn, beat) : !notes(program, peer, beat)) return Waited::gave_up;
  }
  return reach == Reach::node || polls <= polls_between_notes ? Waited::soon : Waited::late;
}

/// As poll, by whole warps: what all threads of one have loaded in their last ready(), they have loaded together. So
/// that holds for packs, which are whole only in one load of all their lanes.
template <Reach reach, class Peer, class Ready>
__device__ inline Waited poll_together(const Program& program, const Peer& peer, const Turn& turn, Ready ready) {
  std::uint64_t polls = 1;
  gpu_converge_warp();
  for (; !gpu_all_of_warp(ready()); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = beat_of(polls);
    if (!gpu_all_of_warp(reach == Reach::any ? goes_on(program, peer, turn, beat) : notes(program, peer, beat)))
      return Waited::gave_up;
  }
  return reach == Reach::node || polls <= polls_between_notes ? Waited::soon : Waited::late;
}

/// Read a line whose header is there, so that the blocks that write it have a place on their GPU; they may die there
/// all the same. False when the wait is released.
template <Reach reach = Reach::any>
__device__ inline bool await_line(const Program& program, const ReceivePeer& peer, const Line* line, std::uint32_t flag,
                                  std::uint64_t* data) {
  for (std::uint64_t polls = 1; !line_arrived(line, flag, data); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = beat_of(polls);
    if (reach == Reach::node ? !wait_on(program, peer, beat) : !still_awaits(program, peer, beat)) return false;
  }
  return true;
}

/// A pack whose header is there, by whole warps. False when the wait is released for one of them.
__device__ inline bool await_pack(const Program& program, const ReceivePeer& peer, const Pack* pack, std::uint32_t lane,
                                  std::uint64_t number, std::uint64_t* words) {
  gpu_converge_warp();
  for (std::uint64_t polls = 1;; ++polls) {
    gpu_load_two(pack->word + 2 * lane, words);
    if (gpu_all_of_warp(lane != Pack::lanes - 1 || words[1] == number)) return true;
    if (polls % polls_between_notes == 0 && !gpu_all_of_warp(still_awaits(program, peer, beat_of(polls)))) return false;
  }
}

/// A chunk of a relayed message is still on its way. By one thread; false when the wait is released.
GPU_OUT_OF_LINE bool await_flag(const Program& program, const ReceivePeer& peer, const std::uint64_t* flag,
                                std::uint64_t value) {
  for (std::uint64_t polls = 1; load_acquire(flag) != value; ++polls)
    if (polls % polls_between_notes == 0 && !still_awaits(program, peer, beat_of(polls))) return false;
  return true;
}

/// The crew of a part (wire/protocol.h).
struct Block {
  static constexpr bool carries_packs = gpu_has_packs;
  static constexpr std::uint32_t counted_parts = most_parts, batch = 4, lanes = Pack::lanes;
  struct Descriptors {
    static constexpr std::uint32_t count = 64;  ///< as many threads as the smallest block has
    union {
      Descriptor all[count];
      MessageEntry entries[count];
    };
  };
  const Program& program;
  std::uint32_t part, parts;

  __device__ Workers of_part() const { return Workers{threadIdx.x, blockDim.x}; }
  __device__ Workers of_peer() const { return Workers{part * blockDim.x + threadIdx.x, parts * blockDim.x}; }
  __device__ bool agree(bool yes) const { return !__syncthreads_or(!yes); }
  __device__ bool await(const ReceivePeer& peer, const Line* line, std::uint32_t flag, std::uint64_t* data) const {
    return await_line(program, peer, line, flag, data);
  }
  __device__ bool await(const ReceivePeer& peer, const std::uint64_t* flag, std::uint64_t value) const {
    return await_flag(program, peer, flag, value);
  }
  __device__ bool await(const ReceivePeer& peer, const Pack* pack, std::uint32_t lane, std::uint64_t number,
                        std::uint64_t* words) const {
    return await_pack(program, peer, pack, lane, number, words);
  }
  __device__ void converge() const { gpu_converge_warp(); }
  __device__ void store_pack(Pack* pack, std::uint32_t lane, const std::uint64_t* words) const {
    gpu_store_two(pack->word + 2 * lane, words);
  }
  __device__ bool is_last(std::uint32_t* counted) const {
    return parts == 1 || atomicInc(counted, parts - 1) == parts - 1;
  }

  struct Theirs {
    bool large;
    __device__ bool operator()(std::uint64_t bytes) const { return (bytes > most_bytes_of_a_warp) == large; }
  };
  /// `most_bytes`: no put has more. `move(i, workers, is_theirs)`: put i, if with so many bytes it is theirs. First
  /// what is large, by all together; then the rest, each by a warp: in a loop, as a second copy of what moves takes
  /// registers.
  template <class Move>
  __device__ void share(std::uint32_t count, std::uint64_t most_bytes, Move move) const {
    const Workers all = of_peer();
    const std::uint32_t width = static_cast<std::uint32_t>(warpSize);
    Workers some = all;
    std::uint32_t first = 0, apart = 1;
#pragma unroll 1
    for (bool large = true;; large = false) {
      if (!large || most_bytes > most_bytes_of_a_warp) {
#pragma unroll 1
        for (std::uint32_t i = first; i < count; i += apart) move(i, some, Theirs{large});
      }
      if (!large) break;
      some = Workers{all.index % width, width};
      first = all.index / width, apart = all.size / width;
    }
  }
};

/// To hand the puts of a program to steps.
template <class AnyProgram>
struct PutsOf {
  const AnyProgram& any;
  __device__ const PutOp& operator()(std::uint32_t i) const { return any.op(i); }
};

}  // namespace GPU_NAMESPACE
}  // namespace mpix
