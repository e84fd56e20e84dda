// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "halo_param.h"
#include "notify.h"

/// Exchanges of a halo (mpix_halo.h), as blocks run them: words, and steps.
///
/// Exchanges are numbered from 1, whoever runs them: a launch each, one launch for many, or a kernel of the program.
/// Message m of n has two flags of the halo's channel; s is the number of the exchange, h the number of its buffers.
///
/// | word            | lies in | written by                     | read by               | order |
/// |-----------------|---------|--------------------------------|-----------------------|-------|
/// | step            | device  | the last block of exchange s to end: s | kernels that begin | the stream |
/// | packed: up m    | pinned  | the last block that packs m: s | the service           | each block fences, then adds to `arrived`; the last fences again, and stores |
/// | sent: down m    | pinned  | the service: s, when the send is over | blocks that pack m | pack of s waits for s - h: the buffer is MPI's until then |
/// | received: down n + m | pinned | the service: s              | blocks that unpack m  | release / acquire: the data are in the buffer |
/// | unpacked: up n + m | pinned | the last block that unpacks m: s | the service        | as packed; receive s + h is started then, into the same buffer |
/// | arrived, ended  | device  | blocks: fetch and add          | the same              | never reset: the last of exchange s finds s times the number of parts |
/// | over            | device  | the last block of a launch: its number | the host, to free; a launch for many, and steps behind an early end, which begin when the launch before is over | release / acquire, after `step`; the program orders exchanges by themselves |
/// | ready           | device  | memory operations of the program's stream: steps whose boxes are filled | blocks of a launch for many | a memory operation comes after what is before it in its stream; acquire |
/// | stopped         | device  | likewise, after the last `ready`: the number of the launch that no step follows | the same, before they look at `ready` | acquire, both: who sees the stop sees all steps before it. A step of the next launch is made ready when that one is over |
/// | done            | device  | the last block of a step: its number | memory operations that hold the program's stream | release, after all blocks' fences, and after `step` |
/// | meeting, met    | device  | blocks of a grid: fetch and add; the last of a meeting: one more | the same | fence, add … load, fence |
///
/// Steps are exchanges that one launch for many has been told of; done and ready count them over all launches.
///
/// Parts that pack come first, and wait for the service alone; those that unpack wait for other ranks. Block b of B
/// does parts b, b + B …: so every block has packed all of its own before it waits for another rank. Blocks are few
/// enough for all to be resident, and no more than parts: none begins when others have ended an exchange.
namespace mpix {

/// A box: rows of bytes, `rows[d]` of them in each of four directions (the last: fields), which begin `stride[d]`
/// apart. Or a part of one, from unit `first` on.
struct HaloBox {
  char* base;
  std::uint64_t row_bytes;
  std::uint32_t rows[4];
  std::int64_t stride[4];
  std::uint64_t at;  ///< in the message
  std::uint64_t first, units;
  std::uint32_t unit;  ///< 1, 2, 4, 8 or 16 bytes: what every row begins and ends at a multiple of

  MPIX_FN std::uint64_t all_rows() const { return std::uint64_t{rows[0]} * rows[1] * rows[2] * rows[3]; }
  MPIX_FN std::uint64_t bytes() const { return row_bytes * all_rows(); }
};

struct HaloMessage {
  char *send[2], *recv[2];  ///< buffers: of exchange s that with index s mod 2
  std::uint32_t first_send, send_boxes, first_recv, recv_boxes;
  std::uint32_t send_parts, recv_parts;
};

/// What a block does at a time.
struct HaloPart {
  std::uint32_t message, part, parts;
  std::uint32_t unpacks;  ///< or packs
  std::uint32_t met;      ///< all blocks of the grid have one of it, and meet behind it
};

struct HaloWords {
  alignas(64) std::uint64_t step;
  std::uint64_t over;
  alignas(64) std::uint64_t ended;
  std::uint64_t left;  ///< blocks of a launch for many that have
  alignas(64) std::uint64_t ready;
  std::uint64_t stopped;
  alignas(64) std::uint64_t done;
  alignas(64) std::uint64_t meeting;
  std::uint64_t met;
  std::uint64_t unused[6];
  std::uint64_t arrived[1];  ///< by message, and again: those that unpack; more of them behind
};

/// Flags of the channel behind those of the messages: they are there for the notes of those that wait for other things.
MPIX_FN std::uint32_t halo_ready_flag(const MPIX_Dev_halo& halo) { return 2 * halo.messages; }
MPIX_FN std::uint32_t halo_meeting_flag(const MPIX_Dev_halo& halo) { return 2 * halo.messages + 1; }
MPIX_FN std::uint32_t halo_done_flag(const MPIX_Dev_halo& halo) { return 2 * halo.messages + 2; }
constexpr std::uint32_t halo_extra_flags = 3;

/// What is noted of a wait.
struct HaloNote {
  std::uint64_t step;
  std::uint32_t block;
  MPIX_FN std::uint64_t packed() const { return std::uint64_t{block} << 40 | (step & 0xffffffffff); }
  MPIX_FN static HaloNote unpacked(std::uint64_t note) {
    return HaloNote{note & 0xffffffffff, static_cast<std::uint32_t>(note >> 40)};
  }
};

/// `done`, when no step follows: it lets pass whatever waits.
constexpr std::uint64_t no_more_steps = std::uint64_t{1} << 62;

#if MPIX_ON_DEVICE
using HaloUnit16 = ulonglong2;
#else
struct alignas(16) HaloUnit16 {
  std::uint64_t half[2];
};
#endif

/// Units `first`, `first + step` … of the box, to the message or from there.
template <class Unit>
MPIX_DEV_FN void move_units(const HaloBox& box, char* message, bool unpacks, std::uint64_t first, std::uint64_t step) {
  const std::uint64_t each = box.row_bytes / sizeof(Unit);
  Unit* const packed = reinterpret_cast<Unit*>(message + box.at);
  for (std::uint64_t n = first; n < box.units; n += step) {
    const std::uint64_t i = box.first + n;
    std::uint64_t row = i / each;
    const std::uint64_t in_row = i - row * each;
    std::int64_t offset = 0;
    for (int d = 0; d < 4; ++d) {
      const std::uint64_t next = row / box.rows[d];
      offset += static_cast<std::int64_t>(row - next * box.rows[d]) * box.stride[d];
      row = next;
    }
    Unit* const place = reinterpret_cast<Unit*>(box.base + offset) + in_row;
    if (unpacks)
      *place = packed[n];
    else
      packed[n] = *place;
  }
}

MPIX_DEV_FN void move_box(const HaloBox& box, char* message, bool unpacks, std::uint64_t first, std::uint64_t step) {
  switch (box.unit) {
    case 16:
      return move_units<HaloUnit16>(box, message, unpacks, first, step);
    case 8:
      return move_units<std::uint64_t>(box, message, unpacks, first, step);
    case 4:
      return move_units<std::uint32_t>(box, message, unpacks, first, step);
    case 2:
      return move_units<std::uint16_t>(box, message, unpacks, first, step);
    default:
      return move_units<unsigned char>(box, message, unpacks, first, step);
  }
}

template <class Done>
MPIX_DEV_FN bool wait_in_halo(const MPIX_Dev_halo& halo, std::uint32_t flag, const HaloNote& note, Done done) {
  return dev::wait_in_channel(halo.channel, std::uint64_t{halo.channel.lanes} + flag,
                              dev::channel_note(dev::ChannelWait::flag, note.packed()), done);
}

/// For those that wait for a word which kernels of this process write: threads sleep until somebody rings.
MPIX_DEV_FN void wake_waiters(const MPIX_Dev_halo& halo) {
#if MPIX_ON_DEVICE
  (void)halo;
#else
  halo.channel.hooks->wake(halo.channel.host);
#endif
}

/// All `blocks` blocks of a grid have come here, and see what the others wrote before. `Crew`: the threads of a block:
/// index(), size(), and together(what), which all enter, the first does, and all have what it says. False: the channel
/// is broken.
template <class Crew>
MPIX_DEV_FN bool meet_blocks(const MPIX_Dev_halo& halo, std::uint32_t blocks, std::uint64_t step, const Crew& crew) {
  HaloWords& words = *halo.words;
  return crew.together([&] {
    const std::uint64_t met = load_relaxed(&words.met);
    fence_on_device();
    if (fetch_add_on_device(&words.meeting, 1) + 1 == blocks) {
      fence_on_device();
      store_release(&words.meeting, 0);
      store_release(&words.met, met + 1);
      wake_waiters(halo);
      return true;
    }
    return wait_in_halo(halo, halo_meeting_flag(halo), HaloNote{step, 0},
                        [&] { return load_acquire(&words.met) != met; });
  });
}

/// Who runs an exchange, for what is to do at its end.
struct HaloRunner {
  std::uint32_t block, blocks;
  std::uint64_t launch;  ///< its number; 0: none that the host counts, or another word tells of its end
  std::uint64_t done;    ///< the step; 0: it is none
  bool meets;            ///< where the tables say so: they were made for as many blocks
};

/// Parts of exchange `step` are over; one thread, behind a fence of its block's stores.
MPIX_DEV_FN void count_parts(const MPIX_Dev_halo& halo, std::uint32_t parts, std::uint64_t step,
                             const HaloRunner& runner) {
  HaloWords& words = *halo.words;
  if (fetch_add_on_device(&words.ended, parts) + parts != step * halo.parts) return;
  // Others may begin the next exchange as soon as `done` lets them, and find the number of this one.
  store_release(&words.step, step);
  if (runner.launch != 0) store_release(&words.over, runner.launch);
  if (runner.done == 0) return;
  fence_stores();
  store_after_loads(&words.done, runner.done);
  wake_waiters(halo);
}

/// Part `part` of `parts` of the message, which stands for `weight` parts of the tables. False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_part(const MPIX_Dev_halo& halo, const HaloPart& part, std::uint32_t weight,
                               std::uint32_t first_block, std::uint64_t step, const HaloRunner& runner,
                               const Crew& crew) {
  // What the tables say is here when the wait is over.
  const HaloMessage message = halo.message[part.message];
  const bool unpacks = part.unpacks != 0;
  const std::uint32_t flag = unpacks ? halo.messages + part.message : part.message;
  const std::uint64_t awaited = unpacks ? step : step > halo.halves ? step - halo.halves : 0;
  const std::uint32_t first_box = unpacks ? message.first_recv : message.first_send;
  const std::uint32_t boxes = unpacks ? message.recv_boxes : message.send_boxes;
  const HaloBox first = boxes > 0 ? halo.box[first_box] : HaloBox{};
  if (!crew.together([&] {
        return dev::wait_for_flag(halo.channel, flag, awaited, HaloNote{step, first_block}.packed()) == dev::Post::ok;
      }))
    return false;
  char* const buffer = unpacks ? message.recv[step & 1] : message.send[step & 1];
  for (std::uint32_t b = 0; b < boxes; ++b)
    move_box(b == 0 ? first : halo.box[first_box + b], buffer, unpacks,
             std::uint64_t{part.part} * crew.size() + crew.index(), std::uint64_t{part.parts} * crew.size());
  if (part.met != 0 && runner.meets && !meet_blocks(halo, runner.blocks, step, crew)) return false;
  return crew.together([&] {
    fence_stores();
    bool well = true;
    const std::uint32_t parts = unpacks ? message.recv_parts : message.send_parts;
    if (fetch_add_on_device(halo.words->arrived + flag, weight) + weight == step * parts)
      well = dev::set_flag(halo.channel, flag, step, parts > 1) == dev::Post::ok;
    count_parts(halo, weight, step, runner);
    return well;
  });
}

/// The block's parts among those from `first` to `end`.
template <class Crew>
MPIX_DEV_FN bool run_halo_parts(const MPIX_Dev_halo& halo, std::uint32_t first, std::uint32_t end, std::uint64_t step,
                                const HaloRunner& runner, const Crew& crew) {
  for (std::uint32_t p = first + runner.block; p < end; p += runner.blocks) {
    const HaloPart part = halo.part[p];
    if (!run_halo_part(halo, part, 1, (p - first - part.part) % runner.blocks, step, runner, crew)) return false;
  }
  return true;
}

/// One block packs, or unpacks, a message of the program.
template <class Crew>
MPIX_DEV_FN bool run_halo_message(const MPIX_Dev_halo& halo, std::uint32_t given, bool unpacks, std::uint64_t step,
                                  const HaloRunner& runner, const Crew& crew) {
  for (std::uint32_t m = halo.first[given]; m < halo.first[given + 1]; ++m) {
    const HaloMessage message = halo.message[m];
    const std::uint32_t parts = unpacks ? message.recv_parts : message.send_parts;
    if (parts == 0) continue;  // to or from nobody
    if (!run_halo_part(halo, HaloPart{m, 0, 1, unpacks ? 1u : 0u, 0}, parts, runner.block, step, runner, crew))
      return false;
  }
  return true;
}

/// A launch of the library: an exchange, or a part of one; or many.
struct HaloRun {
  MPIX_Dev_halo halo;
  std::uint32_t first_part, end_part;
  std::uint32_t blocks;
  std::uint32_t is_gated;  ///< its exchanges are steps, which the program makes ready
  std::uint64_t launch;    ///< its number; 0: not told to the host
  std::uint64_t steps;     ///< exchanges
  std::uint64_t ready;     ///< steps before its first
};

/// Step `number` is ready. False: it will never be, or the channel is broken. One thread.
MPIX_DEV_FN bool wait_until_ready(const HaloRun& run, std::uint64_t number) {
  HaloWords& words = *run.halo.words;
  bool is_ready = false;
  const bool well = wait_in_halo(run.halo, halo_ready_flag(run.halo), HaloNote{number, 0}, [&] {
    const bool is_stopped = load_acquire(&words.stopped) >= run.launch;
    is_ready = load_acquire(&words.ready) >= number;
    return is_ready || is_stopped;
  });
  return well && is_ready;
}

/// False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_block(const HaloRun& run, std::uint32_t block, const Crew& crew) {
  HaloWords& words = *run.halo.words;
  const std::uint64_t before = load_relaxed(&words.step);
  if (run.is_gated == 0)
    return run_halo_parts(run.halo, run.first_part, run.end_part, before + 1,
                          HaloRunner{block, run.blocks, run.launch, 0, true}, crew);
  for (std::uint64_t i = 1; i <= run.steps; ++i) {
    if (!crew.together([&] { return wait_until_ready(run, run.ready + i); })) break;
    if (!run_halo_parts(run.halo, run.first_part, run.end_part, before + i,
                        HaloRunner{block, run.blocks, 0, run.ready + i, true}, crew))
      break;
  }
  return crew.together([&] {
    const bool is_released = dev::is_released(run.halo.channel);
    if (is_released) {
      store_release(&words.done, no_more_steps);  // lest the program's stream wait for ever
      wake_waiters(run.halo);
    }
    if (fetch_add_on_device(&words.left, 1) + 1 == run.blocks) {
      store_release(&words.left, 0);
      store_release(&words.over, run.launch);
      wake_waiters(run.halo);
    }
    return !is_released;
  });
}

// ---- A stream of the program, where no memory operation does it --------------------------------------------

/// Behind what the stream has done before. One thread.
MPIX_DEV_FN void tell_halo(const MPIX_Dev_halo& halo, std::uint64_t* word, std::uint64_t value) {
  store_release(word, value);
  wake_waiters(halo);
}
/// False: the channel is broken.
MPIX_DEV_FN bool wait_for_word(const MPIX_Dev_halo& halo, const std::uint64_t* word, std::uint64_t value) {
  return wait_in_halo(halo, halo_done_flag(halo), HaloNote{value, 0}, [&] { return load_acquire(word) >= value; });
}

}  // namespace mpix
