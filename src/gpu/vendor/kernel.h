// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "kernels/protocol.h"

/// The GPU's way to run a program: blocks split over peers, and for much data several blocks a peer (parts).
///
/// Blocks of sends come first in the grid. Blocks start in the order of their index, so no block that waits
/// for a peer's data can keep this rank's own sends from running; and sends wait only for what peers have
/// enqueued before (kernels/program.h). Every thread of a block polls by itself, so that data that is there
/// moves on without a barrier.
namespace mpix {

constexpr unsigned threads_per_block = 512;
constexpr std::uint32_t polls_between_looks_at_release = 4096;

struct Parts {
  std::uint32_t send;     ///< blocks for each send
  std::uint32_t receive;  ///< and for each receive
};

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

/// True for exactly one of the `parts` blocks: the last to come here. Only thread 0 asks.
__device__ inline bool is_last(std::uint32_t* arrived, std::uint32_t parts) {
  if (parts == 1) return true;
  gpu_fence_system();
  if (atomicAdd(arrived, 1u) != parts - 1) return false;
  *arrived = 0;
  gpu_fence_system();
  return true;
}

__device__ inline void send_block(const Program& program, std::uint32_t index, std::uint32_t part,
                                  std::uint32_t parts) {
  const SendPeer& peer = program.sends[index];
  __shared__ bool go;
  if (threadIdx.x == 0) go = poll(program.host, [&] { return may_send(peer); });
  __syncthreads();
  if (!go) return;
  send(peer, program.ops, Team{part * blockDim.x + threadIdx.x, parts * blockDim.x});
  __syncthreads();
  if (threadIdx.x == 0 && is_last(&peer.words->sending, parts) && peer.signals) signal(peer);
}

__device__ inline void receive_block(const Program& program, std::uint32_t index, std::uint32_t part,
                                     std::uint32_t parts) {
  const ReceivePeer& peer = program.receives[index];
  const bool arrived = poll(program.host, [&] { return has_arrived(peer); });
  if (arrived) receive(peer, Team{part * blockDim.x + threadIdx.x, parts * blockDim.x});
  if (__syncthreads_or(!arrived)) return;
  if (threadIdx.x == 0 && is_last(&peer.words->receiving, parts)) acknowledge(peer);
}

__global__ void __launch_bounds__(threads_per_block) run_program(Program program, Parts parts) {
  gpu_wait_for_previous();
  if (blockIdx.x == 0)
    for (std::uint32_t i = threadIdx.x; i < program.post_count; i += blockDim.x) announce(program.posts[i]);
  const std::uint32_t send_blocks = program.send_count * parts.send;
  if (blockIdx.x < send_blocks) {
    send_block(program, blockIdx.x / parts.send, blockIdx.x % parts.send, parts.send);
    return;
  }
  const std::uint32_t block = blockIdx.x - send_blocks;
  if (block < program.receive_count * parts.receive)
    receive_block(program, block / parts.receive, block % parts.receive, parts.receive);
}

}  // namespace mpix
