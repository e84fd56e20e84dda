// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/block.h"
#include "device/gpu/few_packs.h"

/// A block's part of a receive; see kernel.h.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// An epoch of any kind. With few arguments, so that it costs the usual epoch no registers: `peer` lies in shared
/// memory. In place: where it was a function, kernels that call nothing else had a stack for it (0.07 of 3 µs).
template <Reach reach>
__device__ inline bool receive_any(const Program& program, const ReceivePeer& peer, std::uint64_t epoch, Header header,
                                   std::uint32_t part, std::uint32_t parts) {
  __shared__ Block::Descriptors descriptors;
  const Block block{program, part, parts};
  // Each kernel has a copy of what it calls.
  if constexpr (reach == Reach::node)
    return receive_slot(block, peer, epoch, header, descriptors);
  else
    return receive(block, peer, epoch, header, descriptors);
}

/// As end_late_send. `usual`: this part has its data already.
template <class AnyProgram>
GPU_OUT_OF_LINE void end_late_receive(const AnyProgram& any, std::uint32_t index, Turn turn, EpochCounter before,
                                      Header header, bool usual, bool gave_up) {
  const ReceivePeer& peer = any.receive(index);
  const Outcome outcome = settle(any.program.host, leaving_word(peer), turn.epoch, turn.part, gave_up);
  if (outcome.left) return;
  bool released = outcome.released;
  if (outcome.again) {
    usual = false;
    const Line* const slot = slot_of(peer.ring, turn.epoch);
    const auto has_header = [&] {
      return peer.relayed ? message_arrived(*peer.relayed, turn.epoch, &header.word)
                          : line_arrived(slot, flag_of(turn.epoch), &header.word);
    };
    const Turn to_the_end{turn.epoch, turn.part, 1};
    released = __syncthreads_or(poll<Reach::any>(any.program, peer, to_the_end, has_header) == Waited::gave_up);
  }
  if (released && turn.epoch > retired_epoch) return;
  if (!released && (!usual || outcome.leavers != 0)) {
    __shared__ ReceivePeer shared;
    if (threadIdx.x == 0) shared = peer;
    bool good = true;
    for (std::uint32_t other = 0; other < turn.parts; ++other) {
      const bool mine = other == turn.part && !usual;
      if (!mine && (outcome.leavers >> other & 1) == 0) continue;
      __syncthreads();
      if (!receive_any<Reach::any>(any.program, shared, turn.epoch, header, other, turn.parts)) good = false;
    }
    released = __syncthreads_or(!good);
  }
  if (any.program.guards && !released && threadIdx.x == 0) count_received(peer.words, turn.part);
  advance(Block{any.program, turn.part, turn.parts}, peer.words->own.closed, before, any.program.captured,
          outcome.leavers);
}

/// The packs of a usual epoch that are this thread's; it has looked at them once. False where a wait was released. By
/// whole warps.
__device__ inline bool receive_few_packs(const Program& program, const ReceivePeer& peer, const Pack* packs,
                                         std::uint64_t number, std::uint64_t* to, std::uint32_t words,
                                         const FewPacks& mine, std::uint64_t* own) {
  const std::uint32_t count = packs_for(words * 8);
  for (std::uint32_t polls = 1; !mine.are_there(own, count, number); ++polls) {
    if (polls % polls_between_notes == 0 && !gpu_all_of_warp(wait_on(program, peer, polls / polls_between_notes)))
      return false;
    mine.look(packs, count, own);
  }
  mine.store(to, words, own);
  return true;
}

/// The words of a usual epoch that are this thread's. False where a wait was released. For the first `looked` of them
/// it has looked already: they are word[i] if there[i].
template <Reach reach, std::uint32_t looked>
__device__ inline bool receive_words(const Program& program, const ReceivePeer& peer, const Line* payload,
                                     std::uint32_t flag, std::uint64_t* to, std::uint32_t words, Workers workers,
                                     std::uint64_t (&word)[most_each], bool (&there)[most_each]) {
  if (workers.index >= words) return true;
  if (!there[0] && !await_line<reach>(program, peer, payload + workers.index, flag, &word[0])) return false;
  to[workers.index] = word[0];
  if (words <= workers.size) return true;
  MPIX_UNROLL
  for (std::uint32_t i = looked; i < most_each; ++i) {
    const std::uint32_t at = workers.index + i * workers.size;
    there[i] = at < words && line_arrived(payload + at, flag, &word[i]);
  }
  MPIX_UNROLL
  for (std::uint32_t i = 1; i < most_each; ++i) {
    const std::uint32_t at = workers.index + i * workers.size;
    if (at >= words) break;
    if (!there[i] && !await_line<reach>(program, peer, payload + at, flag, &word[i])) return false;
    to[at] = word[i];
  }
  return true;
}

template <Form form, Reach reach, class AnyProgram>
__device__ inline void receive_part(const AnyProgram& any, std::uint32_t index, std::uint32_t part, Share share,
                                    EpochCounter before) {
  const ReceivePeer& peer = any.receive(index);
  const std::uint32_t parts = share.parts;
  const std::uint64_t epoch = before.epochs + 1;
  const Block block{any.program, part, parts};
  const Workers workers = block.of_peer();
  const std::uint32_t flag = flag_of(epoch);
  const Line* slot = slot_of(peer.ring, epoch);

  std::uint64_t first_word = 0, own_word[most_each];
  bool own_there[most_each];
  constexpr std::uint32_t most_looked = form == Form::few ? most_each : 1;
  const Share expected = form == Form::few ? share : Share{0, 1, false};
  const FewPacks mine(workers, expected.each);
  const Pack* const packs = packs_of(peer.ring, epoch);
  std::uint64_t own_packs[form == Form::few ? 2 * most_each : 2];
  const bool is_relayed = reach == Reach::any && peer.relayed;
  Waited waited;
  if (is_relayed) {
    // One thread looks for all, as in send_part.
    __shared__ struct {
      Waited waited;
      std::uint64_t word;
    } seen;
    const auto has_message = [&] { return message_arrived(*peer.relayed, epoch, &first_word); };
    if (threadIdx.x == 0) {
      seen.waited = poll<reach>(any.program, peer, Turn{epoch, part, parts}, has_message);
      seen.word = first_word;
    }
    __syncthreads();
    waited = seen.waited;
    first_word = seen.word;
  } else {
    // No branches between the loads, which would come one after another.
    const Line* own_line[most_looked];
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < most_looked; ++i) {
      const std::uint32_t own = Header::single_payload + workers.index + i * workers.size;
      own_line[i] = slot + (i < expected.each && own < data_lines(peer.ring) ? own : 0);
    }
    const auto has_header = [&] {
      MPIX_UNROLL
      for (std::uint32_t i = 0; i < most_looked; ++i)
        own_there[i] = line_arrived(own_line[i], flag, &own_word[i]) & (own_line[i] != slot);
      return line_arrived(slot, flag, &first_word);
    };
    const auto has_header_of_packs = [&] {
      if constexpr (form == Form::few) mine.look(packs, peer.ring.slot_packs, own_packs);
      return line_arrived(slot, flag, &first_word);
    };
    const Turn turn{epoch, part, parts};
    waited = form == Form::few && expected.packed ? poll_together<reach>(any.program, peer, turn, has_header_of_packs)
                                                  : poll<reach>(any.program, peer, turn, has_header);
  }
  gpu_wait_for_front();
  gpu_let_next_start();
  bool usual = false;
  if (waited != Waited::gave_up && !is_relayed && Header{first_word}.is_single()) {
    const Header header{first_word};
    auto* const to = reinterpret_cast<std::uint64_t*>(peer.window + header.single_offset());
    const std::uint32_t words = header.single_bytes() / 8;
    usual = (reinterpret_cast<std::uintptr_t>(to) | header.single_bytes()) % 8 == 0;
    if (header.is_packed()) {
      usual =
          usual && expected.packed && packs_for(header.single_bytes()) <= expected.each * (workers.size / Pack::lanes);
      if constexpr (form == Form::few)
        if (usual && !receive_few_packs(any.program, peer, packs, epoch, to, words, mine, own_packs))
          waited = Waited::gave_up;
    } else {
      usual = usual && !expected.packed && words <= most_each * workers.size;
      if (usual && !receive_words<reach, most_looked>(any.program, peer, slot + Header::single_payload, flag, to, words,
                                                      workers, own_word, own_there))
        waited = Waited::gave_up;
    }
    if (usual && workers.index == 0) scrub(peer.ring, epoch, lines_of_single(header), 0);
  }
  // All threads see the same epoch, but a wait may be given up by some and not by others.
  if constexpr (reach == Reach::any) {
    if (__syncthreads_or(waited != Waited::soon)) {
      end_late_receive(any, index, Turn{epoch, part, parts}, before, Header{first_word}, usual,
                       waited == Waited::gave_up);
      return;
    }
  }
  bool released = reach == Reach::node && __syncthreads_or(waited == Waited::gave_up);
  if (released && epoch > retired_epoch) return;
  if (!released && !usual) {
    __shared__ ReceivePeer shared;
    if (threadIdx.x == 0) shared = peer;
    __syncthreads();
    const bool good = receive_any<reach>(any.program, shared, epoch, Header{first_word}, part, parts);
    released = __syncthreads_or(!good);
  }
  if (any.program.guards && !released && threadIdx.x == 0) count_received(peer.words, part);
  advance(block, peer.words->own.closed, before, any.program.captured);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
