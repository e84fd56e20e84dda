// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "kernels/wait_note.h"

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
  if (threadIdx.x == 0) store_after_loads(note_place(program.host, peer), packed(waits_for(peer, fused), beat));
  return !is_released(program.host);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
