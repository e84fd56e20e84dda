// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>

#include "device/gpu/arguments.h"
#include "device/gpu/few_packs.h"
#include "device/gpu/long_wait.h"
#include "wire/protocol.h"

/// The GPU's way to run a program: a grid of parts × peers. Block (part, i) does its part of the i-th send, then
/// its part of the i-th receive. Sends wait only for what peers have enqueued before (wire/program.h), so no
/// block's wait keeps another rank's block from what this one waits for.
///
/// What a small epoch costs is its chain of dependent loads, some 0.5 µs each, so:
/// - tables of few entries travel in the kernel's arguments (arguments.h), not in device memory;
/// - every thread polls by itself: no barrier between the look at a word and the data;
/// - the header of the usual epoch says all about its one put;
/// - loads are issued before the first of them is used, and a thread looks for its own first word together with the
///   header: where that would be is known before (0.1 of 3.2 µs);
/// - the usual epoch, one put of whole words through the mailbox, one for each thread, has a kernel of its own: short
///   straight code in few registers; and so has one of a few words, or packs, for each, which are all looked for
///   together with the header, too;
/// - where the kernel in front in the stream is known to be ours, work starts before that one has ended (Early).
namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr unsigned most_threads = 512;

/// How a thread's wait has gone: given up, as it is released or its part may leave; or for what it waited is there.
enum class Waited { gave_up, late, soon };

/// Poll until ready(). Now and then the host is told what `peer` is waited for.
template <Reach reach, class Peer, class Ready>
__device__ inline Waited poll(const Program& program, const Peer& peer, const Turn& turn, Ready ready) {
  std::uint32_t polls = 1;
  for (; !ready(); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = polls / polls_between_notes;
    if (reach == Reach::any ? !goes_on(program, peer, turn, beat) : !notes(program, peer, beat)) return Waited::gave_up;
  }
  return reach == Reach::node || polls <= polls_between_notes ? Waited::soon : Waited::late;
}

/// As poll, by whole warps: what all threads of one have loaded in their last ready(), they have loaded together. So
/// that holds for packs, which are whole only in one load of all their lanes.
template <Reach reach, class Peer, class Ready>
__device__ inline Waited poll_together(const Program& program, const Peer& peer, const Turn& turn, Ready ready) {
  std::uint32_t polls = 1;
  for (; !gpu_all_of_warp(ready()); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = polls / polls_between_notes;
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
  for (std::uint32_t polls = 1; !line_arrived(line, flag, data); ++polls) {
    if (polls % polls_between_notes != 0) continue;
    const std::uint32_t beat = polls / polls_between_notes;
    if (reach == Reach::node ? !wait_on(program, peer, beat) : !still_awaits(program, peer, beat)) return false;
  }
  return true;
}

/// A pack whose header is there, by whole warps. False when the wait is released for one of them.
__device__ inline bool await_pack(const Program& program, const ReceivePeer& peer, const Pack* pack, std::uint32_t lane,
                                  std::uint64_t number, std::uint64_t* words) {
  for (std::uint32_t polls = 1;; ++polls) {
    gpu_load_two(pack->word + 2 * lane, words);
    if (gpu_all_of_warp(lane != Pack::lanes - 1 || words[1] == number)) return true;
    if (polls % polls_between_notes == 0 && !gpu_all_of_warp(still_awaits(program, peer, polls / polls_between_notes)))
      return false;
  }
}

/// A chunk of a relayed message is still on its way. By one thread; false when the wait is released.
GPU_OUT_OF_LINE bool await_flag(const Program& program, const ReceivePeer& peer, const std::uint64_t* flag,
                                std::uint64_t value) {
  for (std::uint32_t polls = 1; load_acquire(flag) != value; ++polls)
    if (polls % polls_between_notes == 0 && !still_awaits(program, peer, polls / polls_between_notes)) return false;
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

// ---- sending -----------------------------------------------------------------------------------------

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
  if (reach == Reach::any && parts > 1) gpu_let_next_start();
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
  const bool released = reach == Reach::node && __syncthreads_or(!go);
  if (!peer.signals || (released && epoch > retired_epoch)) return;
  if (!released && threadIdx.x == 0) end_of_sent_part(any, peer, Turn{epoch, part, parts}, usual);
  advance(block, words->own.sent, before, any.program.captured, 0);
}

// ---- receiving ---------------------------------------------------------------------------------------

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

// ---- kernels -----------------------------------------------------------------------------------------

template <Role role, Form form, Reach reach, class AnyProgram>
__global__ void __launch_bounds__(most_threads, 2)
    run_program(const GPU_GRID_CONSTANT Arguments<AnyProgram> arguments) {
  const AnyProgram& any = arguments.any;
  const Shape& shape = arguments.shape;
  const Program& program = any.program;
  const std::uint32_t part = blockIdx.x, index = blockIdx.y;
  const bool may_send_here = role != Role::receive && (role == Role::send || blockIdx.z == 0);
  const bool may_receive_here = role != Role::send && (role == Role::receive || blockIdx.z == 1);
  const Share sent = index < program.send_count ? any.share_of_send(index, shape) : Share{};
  const Share expected = index < program.receive_count ? any.share_of_receive(index, shape) : Share{};
  const bool sends = may_send_here && part < sent.parts, receives = may_receive_here && part < expected.parts;
  EpochCounter closed{};
  if (receives) {
    if (!shape.early.receive) gpu_wait_for_front();
    closed = load_counter(any.receive(index).words->own.closed, part);
  }
  if (part == 0 && index == 0 && blockIdx.z == 0 && program.post_count > 0) {
    gpu_wait_for_front();
    // By the last warps, which have least to do besides: the first must not wait for these counters.
    for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < program.post_count; i += blockDim.x)
      announce(any.post(i), any.post(i).words->own.opened.load(), program.captured, program.guards,
               program.raises_posts);
  }
  if (program.guards && part == 0 && index == 0 && threadIdx.x == 0) {
    if (program.send_count > 0) program.guards->targets = 0;
    if (program.receive_count > 0) program.guards->origins = 0;
  }
  if (sends) send_part<form, reach>(any, index, part, sent, shape);
  if (receives) receive_part<form, reach>(any, index, part, expected, closed);
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
  if (posts) announce(near.posts[threadIdx.x], opened, near.captured, near.guarded, near.raises);
}

/// Posts ahead of what streams have enqueued (epoch/free_posts.h).
__global__ void __launch_bounds__(NearRaises::most) run_raises(const GPU_GRID_CONSTANT NearRaises near) {
  if (threadIdx.x < near.count) raise_after_loads(near.raises[threadIdx.x].posted, near.raises[threadIdx.x].epochs);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
