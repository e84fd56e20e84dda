// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "wire/wait_note.h"

/// What kernels seldom do, out of the way of what they always do.
namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr std::uint32_t polls_between_notes = 4096;

__device__ inline bool is_released(const HostWords* host) {
  return *const_cast<volatile const std::uint32_t*>(&host->released) != 0;
}

__device__ inline std::uint64_t* note_place(const HostWords* host, const SendPeer& peer) {
  return &host->notes[peer.rank].send;
}
__device__ inline std::uint64_t* note_place(const HostWords* host, const ReceivePeer& peer) {
  return &host->notes[peer.rank].receive;
}

/// Tell the host what is waited for. False: the wait is released.
template <class Peer>
__device__ inline bool wait_on(const Program& program, const Peer& peer, std::uint32_t beat) {
  const bool fused = program.send_count > 0 && program.receive_count > 0;
  store_after_loads(note_place(program.host, peer), packed(waits_for(peer, fused), beat));
  return !is_released(program.host);
}

/// The same, by all threads of a block that wait together.
template <class Peer>
__device__ inline bool notes(const Program& program, const Peer& peer, std::uint32_t beat) {
  return threadIdx.x == 0 ? wait_on(program, peer, beat) : !is_released(program.host);
}

// ---- parts that leave: the table is in wire/program.h ---------------------------------------------

__device__ inline unsigned long long* leaving_word(const SendPeer& peer) {
  return reinterpret_cast<unsigned long long*>(&peer.words->own.sent.leaving);
}
__device__ inline unsigned long long* leaving_word(const ReceivePeer& peer) {
  return reinterpret_cast<unsigned long long*>(&peer.words->own.closed.leaving);
}

constexpr unsigned long long may_leave = 1;

__device__ inline unsigned long long tag_of(std::uint64_t epoch) {
  return static_cast<unsigned long long>(epoch) << 32;
}

/// The number of a wait's beat. The first comes once, however long the wait is: what is done then would undo what has
/// come of it.
__device__ inline std::uint32_t beat_of(std::uint64_t polls) {
  const std::uint64_t beat = polls / polls_between_notes;
  return static_cast<std::uint32_t>(beat) | (beat >> 32 == 0 ? 0 : 1u << 31);
}

/// Whose turn it is to wait: a part of an epoch.
struct Turn {
  std::uint64_t epoch;
  std::uint32_t part, parts;  ///< parts 1: it never leaves
};

/// A wait has taken a while, again. False: wait no longer, as it is released or the part may leave.
template <class Peer>
GPU_OUT_OF_LINE bool goes_on(const Program& program, const Peer& peer, const Turn& turn, std::uint32_t beat) {
  if (threadIdx.x == 0 ? !wait_on(program, peer, beat) : is_released(program.host)) return false;
  if (turn.parts == 1) return true;
  unsigned long long* const word = leaving_word(peer);
  if (turn.part == 0) {
    if (beat == 1 && threadIdx.x == 0) (void)atomicExch(word, tag_of(turn.epoch) | may_leave);
    return true;
  }
  const unsigned long long seen = load_relaxed(reinterpret_cast<std::uint64_t*>(word));
  return !((seen ^ tag_of(turn.epoch)) >> 32 == 0 && (seen & may_leave) != 0);
}

/// A line is late that should be a store's latency away. Told by each thread that misses one.
GPU_OUT_OF_LINE bool still_awaits(const Program& program, const ReceivePeer& peer, std::uint32_t beat) {
  return wait_on(program, peer, beat);
}

/// How a part's wait has ended, where it was long or was given up.
struct Outcome {
  bool released;          ///< for good
  bool left;              ///< its work is part 0's
  bool again;             ///< the part has to look once more: what it waits for is there
  std::uint32_t leavers;  ///< to part 0: the parts that have left
};

/// All threads of the block, any of which may have given up.
GPU_OUT_OF_LINE Outcome settle(const HostWords* host, unsigned long long* word, std::uint64_t epoch, std::uint32_t part,
                               bool gave_up) {
  __shared__ Outcome outcome;
  const bool any_gave_up = __syncthreads_or(gave_up) != 0;
  if (threadIdx.x == 0) {
    Outcome now{};
    if (part == 0) {
      const unsigned long long last = atomicExch(word, tag_of(epoch));
      if ((last ^ tag_of(epoch)) >> 32 == 0) now.leavers = static_cast<std::uint32_t>(last) & ~1u;
      now.released = any_gave_up;
    } else if (any_gave_up) {
      unsigned long long seen = atomicCAS(word, 0, 0);
      while (!now.left && (seen ^ tag_of(epoch)) >> 32 == 0 && (seen & may_leave) != 0) {
        const unsigned long long before = atomicCAS(word, seen, seen | 1ull << part);
        now.left = before == seen;
        seen = before;
      }
      if (!now.left) {
        now.released = is_released(host);
        now.again = !now.released;
      }
    }
    outcome = now;
  }
  __syncthreads();
  return outcome;
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
