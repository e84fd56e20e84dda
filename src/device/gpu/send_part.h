// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/block.h"
#include "device/gpu/few_packs.h"

/// A block's part of a send; see kernel.h.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// The message to a relayed peer. Out of the way, as it is long, and needs no copy for each kind of kernel.
GPU_OUT_OF_LINE void pack_part(const Program& program, const SendPeer& peer, const PutOp* puts, std::uint64_t epoch,
                               std::uint32_t part, std::uint32_t parts) {
  pack(
      Block{program, part, parts}, peer, [puts](std::uint32_t i) -> const PutOp& { return puts[i]; }, epoch);
}

/// The work of one part, by the threads of a block: for those that have left, or where a part has to look again.
template <class AnyProgram>
GPU_OUT_OF_LINE void send_for(const AnyProgram& any, std::uint32_t index, std::uint64_t epoch, std::uint32_t part,
                              std::uint32_t parts) {
  const SendPeer& peer = any.send(index);
  if (peer.relayed)
    pack_part(any.program, peer, any.puts(), epoch, part, parts);
  else
    send(Block{any.program, part, parts}, peer, PutsOf<AnyProgram>{any}, epoch, any.program.guards);
}

/// What one thread does when its part has sent its data.
template <class AnyProgram>
__device__ inline void end_of_sent_part(const AnyProgram& any, const SendPeer& peer, const Turn& turn, bool usual) {
  if (!usual && peer.awaits_post) write_header(peer, turn.epoch, turn.part, turn.parts);
  if (any.program.guards) count_sent(peer.words, peer.there, turn.part, turn.parts);
}

/// When all parts of a message are packed: the program may write to its origin buffers behind this kernel, so one
/// thread waits where the network reads from them. (No part waits for that before others are packed: it may have to do
/// theirs.)
GPU_OUT_OF_LINE void await_end_of_message(const Program& program, const SendPeer& peer, const Turn& turn) {
  if (turn.part != 0 || threadIdx.x != 0 || !peer.signals) return;
  for (std::uint64_t polls = 1; !has_left(*peer.relayed, turn.epoch); ++polls)
    if (polls % polls_between_notes == 0 && !wait_on(program, peer, beat_of(polls))) return;
}

/// The end of a send for which some thread has waited long, or has given up: parts may have left. A function of its
/// own at the end of the kernel: a call in the middle would cost all others registers (128 KiB captured: 5.6 for 3.9
/// µs).
template <class AnyProgram>
GPU_OUT_OF_LINE void end_late_send(const AnyProgram& any, std::uint32_t index, Turn turn, EpochCounter before,
                                   bool usual, bool gave_up) {
  const SendPeer& peer = any.send(index);
  const Outcome outcome = settle(any.program.host, leaving_word(peer), turn.epoch, turn.part, gave_up);
  if (outcome.left) return;
  bool released = outcome.released;
  if (outcome.again) {
    const std::uint64_t* const word = may_go(peer);
    const std::uint64_t needed = post_needed(peer, turn.epoch);
    const auto is_posted = [&] { return load_relaxed(word) >= needed; };
    const Turn to_the_end{turn.epoch, turn.part, 1};
    released = __syncthreads_or(poll<Reach::any>(any.program, peer, to_the_end, is_posted) == Waited::gave_up);
  }
  if (!released)
    for (std::uint32_t other = 0; other < turn.parts; ++other)
      if (outcome.again ? other == turn.part : (outcome.leavers >> other & 1) != 0)
        send_for(any, index, turn.epoch, other, turn.parts);
  if (!peer.signals || (released && turn.epoch > retired_epoch)) return;
  if (!released && peer.relayed) await_end_of_message(any.program, peer, turn);
  if (!released && !outcome.again && threadIdx.x == 0) end_of_sent_part(any, peer, turn, usual);
  advance(Block{any.program, turn.part, turn.parts}, peer.words->own.sent, before, any.program.captured,
          outcome.leavers);
}

/// `form`: so is this send, says the host (Shape::form_of).
template <Form form, Reach reach, class AnyProgram>
__device__ inline void send_part(const AnyProgram& any, std::uint32_t index, std::uint32_t part, Share share,
                                 const Shape& shape) {
  const SendPeer& peer = any.send(index);
  const std::uint32_t parts = share.parts;
  PairWords* words = peer.words;
  const Block block{any.program, part, parts};
  const Workers workers = block.of_peer();
  constexpr bool usual = form != Form::any;
  constexpr std::uint32_t each = form == Form::few ? most_each : 1;
  const bool is_packed = form == Form::few && share.packed;
  if (!shape.early.send) gpu_wait_for_front();
  const bool is_relayed = reach == Reach::any && peer.relayed;
  const std::uint64_t* const may_go_word = is_relayed ? peer.allowed : &words->posted;
  // All loads at once; each is half a microsecond. In memory of the host each thread's look at the same word is a trip
  // of its own, one behind the other: 28 ns on an H200, 0.2 ms for the threads of a put of 64 KiB. So there one looks
  // for all.
  const std::uint64_t posted = is_relayed && threadIdx.x != 0 ? 0 : load_relaxed(may_go_word);
  const EpochCounter before = load_counter(words->own.sent, part);
  const std::uint64_t epoch = before.epochs + 1;
  if (!shape.early.sources) gpu_wait_for_front();
  // Where places are few several parts let nobody start before they know that their own wait is over.
  if (reach == Reach::node || parts == 1) gpu_let_next_start();
  std::uint64_t word[form == Form::few ? 2 * most_each : 1];
  std::uint32_t words_to_send = 0, packs_to_send = 0;
  if (usual) {
    const PutOp& op = any.op(peer.first_op);
    const auto* const source = reinterpret_cast<const unsigned long long*>(op.source);
    words_to_send = static_cast<std::uint32_t>(op.bytes / 8);
    if (is_packed) {
      packs_to_send = packs_for(static_cast<std::uint32_t>(op.bytes));
      if constexpr (form == Form::few) FewPacks(workers, share.each).load(source, words_to_send, word);
    } else {
      if (workers.index < words_to_send) word[0] = load_once(source + workers.index);
      if (form == Form::few && words_to_send > workers.size) {
        MPIX_UNROLL
        for (std::uint32_t i = 1; i < each; ++i)
          if (workers.index + i * workers.size < words_to_send)
            word[i] = load_once(source + workers.index + i * workers.size);
      }
    }
  }
  const std::uint64_t needed = post_needed(peer, epoch);
  const auto is_posted = [&] { return load_relaxed(may_go_word) >= needed; };
  Waited waited = Waited::soon;
  bool go = true;
  if (usual) {
    if (posted < needed) waited = poll<reach>(any.program, peer, Turn{epoch, part, parts}, is_posted);
    go = waited != Waited::gave_up;
    if (is_packed) go = gpu_all_of_warp(go);  // no pack of which some lanes have given up
  } else {
    // Direct data often finds the post still under way, and has many threads: were all of them to look for it, they
    // would hold up the word's memory, and with it the post.
    if (threadIdx.x == 0 && posted < needed)
      waited = poll<reach>(any.program, peer, Turn{epoch, part, parts}, is_posted);
    go = !__syncthreads_or(waited == Waited::gave_up);
  }
  // Nor does the part that waits for the end of its message.
  const bool waits_on = is_relayed && part == 0 && peer.relayed->reads_origin;
  if (reach == Reach::any && parts > 1 && !waits_on) gpu_let_next_start();
  Line* slot = slot_of(peer.ring, epoch);
  const std::uint32_t flag = flag_of(epoch);
  if (go && is_relayed) {
    pack_part(any.program, peer, any.puts(), epoch, part, parts);
  } else if (go) {
    if (threadIdx.x == 0 && peer.signals && !peer.awaits_post) write_header(peer, epoch, part, parts);
    if (is_packed) {
      if constexpr (form == Form::few)
        FewPacks(workers, share.each).send(packs_of(peer.ring, epoch), packs_to_send, epoch, word);
    } else if (usual) {
      Line* const payload = slot + Header::single_payload + workers.index;
      if (workers.index < words_to_send) write_line(payload, word[0], flag);
      if (form == Form::few && words_to_send > workers.size) {
        MPIX_UNROLL
        for (std::uint32_t i = 1; i < each; ++i)
          if (workers.index + i * workers.size < words_to_send) write_line(payload + i * workers.size, word[i], flag);
      }
    } else {
      send_puts(block, peer, PutsOf<AnyProgram>{any}, epoch);
    }
  }
  if constexpr (reach == Reach::any) {
    if (__syncthreads_or(waited != Waited::soon)) {
      end_late_send(any, index, Turn{epoch, part, parts}, before, usual, !go);
      return;
    }
  }
  if (is_relayed && go) await_end_of_message(any.program, peer, Turn{epoch, part, parts});
  const bool released = reach == Reach::node && __syncthreads_or(!go);
  if (!peer.signals || (released && epoch > retired_epoch)) return;
  if (!released && threadIdx.x == 0) end_of_sent_part(any, peer, Turn{epoch, part, parts}, usual);
  advance(block, words->own.sent, before, any.program.captured, 0);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
