// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "halo_param.h"
#include "layout.h"
#include "notify.h"

/// Exchanges of a halo (mpix_halo.h), as blocks run them: words, and steps.
///
/// Exchanges are numbered from 1, whoever runs them: a launch each, one launch for many, or a kernel of the program.
/// Message m of n has two flags of the halo's channel; s is the number of the exchange, h the number of its buffers.
/// Where both ends reach each other's memory a message goes by memory: who packs it writes into a buffer of the rank
/// that unpacks it, of which there are two, and neither MPI nor the service has to do with it.
///
/// | word            | lies in | written by                     | read by               | order |
/// |-----------------|---------|--------------------------------|-----------------------|-------|
/// | step            | device  | the last block of exchange s to end: s | kernels that begin | the stream |
/// | packed: up m    | pinned  | the last block that packs m: s | the service           | each block fences, then adds to `arrived`; the last fences again, and stores |
/// | sent: down m    | pinned  | the service: s, when the send is over | blocks that pack m | pack of s waits for s - h: the buffer is MPI's until then. The launching thread may have seen it already |
/// | received: down n + m | pinned | the service: s              | blocks that unpack m  | release / acquire: the data are in the buffer |
/// | unpacked: up n + m | pinned | the last block that unpacks m: s | the service        | as packed; receive s + h is started then, into the same buffer |
/// | there, of a message by memory | where it is unpacked | the last block that packs it, at the other end: s | blocks that unpack it | as packed; acquire |
/// | room, likewise  | where it is packed | the last block that unpacks it, at the other end: s | blocks that pack it | pack of s waits for s - 2: nobody reads the buffer any more |
/// | line[], of a short message by memory | where it is unpacked | the thread that packs the word, with the tag of s | the thread that unpacks it | the word is in the line: no fence, and no `there`. Written over when `room` allows |
/// | arrived, ended  | device  | blocks: fetch and add          | the same              | never reset: the last of exchange s finds s times the number of parts. A message of one part has no `arrived` |
/// | over            | device  | the last block of a launch: its number | the host, to free; a launch for many, which begins when the launch before is over; steps and exchanges behind an early end, which wait for that launch: the word never falls | release / acquire, after `step`; the program orders exchanges by themselves |
/// | ready           | device  | memory operations of the program's stream: steps whose boxes are filled | blocks of a launch for many | a memory operation comes after what is before it in its stream; acquire |
/// | stopped         | device  | likewise, after the last `ready`: the number of the launch that no step follows | the same, before they look at `ready` | acquire, both: who sees the stop sees all steps before it. A step of the next launch is made ready when that one is over |
/// | done            | device  | the last block of a step: its number | memory operations that hold the program's stream | release, after all blocks' fences, and after `step` |
/// | meeting, met    | device  | blocks of a grid: fetch and add; the last of a meeting: one more | the same | fence, add … load, fence |
///
/// Steps are exchanges that one launch for many has been told of; done and ready count them over all launches.
///
/// Parts that pack come first, and wait for the service, or for what another rank does in an earlier exchange; those
/// that unpack wait for what others do in this one. Block b of B does parts b, b + B …: so every block has packed all
/// of its own before it waits for that. Blocks are few enough for all to be resident, and no more than parts: none
/// begins when others have ended an exchange. tests/model/halo.pml is what goes by memory, for a model checker.
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

/// What is packed of a message, or unpacked.
struct HaloSide {
  char* buffer[2];  ///< of exchange s that with index s mod 2
  HaloBox box;      ///< the first
  std::uint32_t boxes;
  std::uint32_t further_box;  ///< those behind it lie in the table, from here on
  std::uint32_t parts;
  std::uint32_t unused;
};

/// Buffers of a message by memory.
constexpr std::uint32_t halves_by_memory = 2;

/// Of a message by memory, at both ends of it.
struct alignas(64) HaloEndWords {
  std::uint64_t there, room;
  std::uint64_t unused[6];
};

/// What a block does at a time, with all that it needs to know: a load that needs another's result takes as long as
/// the data of a small message.
struct HaloPart {
  HaloSide side;
  std::uint32_t message, part, parts;
  std::uint32_t unpacks;  ///< or packs
  std::uint32_t met;      ///< all blocks of the grid have one of it, and meet behind it
  std::uint32_t by_lines;
  // By memory; else null:
  const std::uint64_t* awaited;  ///< here
  std::uint64_t* told;           ///< at the other end
  dev::ChannelHost* told_bell;   ///< host back end
};

/// For a block that does all of a message by itself.
struct HaloMessage {
  HaloPart send, recv;
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

/// Where row `row` of the box begins, from its base. Out of line, as it divides, and stands in many places.
MPIX_DEV_CALL std::int64_t row_of_box(const HaloBox& box, std::uint32_t row) {
  std::int64_t offset = 0;
  for (int d = 0; d < 4; ++d) {
    const std::uint32_t next = row / box.rows[d];
    offset += static_cast<std::int64_t>(row - next * box.rows[d]) * box.stride[d];
    row = next;
  }
  return offset;
}

/// Where unit i of the box lies. There are fewer than 2^31.
template <class Unit>
MPIX_DEV_FN Unit* place_in_box(const HaloBox& box, std::uint32_t i, std::uint32_t units_of_a_row) {
  const std::uint32_t row = i / units_of_a_row;
  return reinterpret_cast<Unit*>(box.base + row_of_box(box, row)) + (i - row * units_of_a_row);
}

/// Units `first`, `first + step` … of the box, to the message or from there. Several at a time, as each takes as long
/// as the link to the host and back.
template <class Unit>
MPIX_DEV_FN void move_units(const HaloBox& box, char* message, bool unpacks, std::uint32_t first, std::uint32_t step) {
  constexpr std::uint32_t in_flight = 4;
  const auto units = static_cast<std::uint32_t>(box.units), begin = static_cast<std::uint32_t>(box.first);
  const auto units_of_a_row = static_cast<std::uint32_t>(box.row_bytes / sizeof(Unit));
  const bool is_one_row = box.all_rows() == 1;
  Unit* const packed = reinterpret_cast<Unit*>(message + box.at);
  MPIX_NO_UNROLL
  for (std::uint32_t next = first; next < units; next += in_flight * step) {
    Unit unit[in_flight], *place[in_flight];
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      // Beyond the end the first again: a condition takes more registers.
      const std::uint32_t n = next + k * step < units ? next + k * step : next;
      place[k] = is_one_row ? reinterpret_cast<Unit*>(box.base) + begin + n
                            : place_in_box<Unit>(box, begin + n, units_of_a_row);
      unit[k] = *(unpacks ? packed + n : place[k]);
    }
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint32_t k = 0; k < in_flight; ++k)
      if (next + k * step < units) *(unpacks ? place[k] : packed + next + k * step) = unit[k];
  }
}

#if !MPIX_ON_DEVICE
/// All of it, by one thread.
MPIX_DEV_FN void move_rows(const HaloBox& box, char* message, bool unpacks) {
  const auto units_of_a_row = static_cast<std::uint32_t>(box.row_bytes / box.unit);
  char* packed = message + box.at;
  for (std::uint64_t n = 0; n < box.units;) {
    const auto i = static_cast<std::uint32_t>(box.first + n), in_row = i % units_of_a_row;
    const std::uint64_t units = std::min<std::uint64_t>(units_of_a_row - in_row, box.units - n);
    char* const place = place_in_box<char>(box, i - in_row, units_of_a_row) + std::size_t{in_row} * box.unit;
    const std::size_t bytes = units * box.unit;
    std::memcpy(unpacks ? place : packed, unpacks ? packed : place, bytes);
    packed += bytes;
    n += units;
  }
}
#endif

MPIX_DEV_CALL void move_box(const HaloBox& box, char* message, bool unpacks, std::uint32_t first, std::uint32_t step) {
#if !MPIX_ON_DEVICE
  if (step == 1) return move_rows(box, message, unpacks);
#endif
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

/// `further`: the table of boxes; `mover`: of `movers` threads.
MPIX_DEV_FN void move_side(const HaloSide& side, const HaloBox* further, char* message, bool unpacks,
                           std::uint32_t mover, std::uint32_t movers) {
  const HaloBox* box = &side.box;
  MPIX_NO_UNROLL
  for (std::uint32_t b = 0; b < side.boxes; ++b, box = further + side.further_box + b - 1)
    move_box(*box, message, unpacks, mover, movers);
}

/// For what the other end of a message by memory does. One thread, or several each for itself.
template <class Done>
MPIX_DEV_FN bool wait_for_end(const MPIX_Dev_halo& halo, std::uint32_t flag, const HaloNote& note, Done done) {
  const MPIX_Dev_channel& c = halo.channel;
  std::uint64_t* const noted_at = c.host->notes + c.lanes + flag;
  return dev::wait_as(
      dev::Waiter{halo.bell, c.hooks, noted_at, dev::channel_note(dev::ChannelWait::flag, note.packed())},
      [&] { return dev::is_released(c); }, done);
}

MPIX_DEV_FN void wake_end(const MPIX_Dev_halo& halo, const HaloPart& part) {
#if MPIX_ON_DEVICE
  (void)halo;
  (void)part;
#else
  halo.channel.hooks->wake(part.told_bell);
#endif
}

/// Behind what this thread, or its block in front of a barrier, has read, and, where it publishes, has written. False:
/// the halo is no more.
MPIX_DEV_FN bool tell_end(const MPIX_Dev_halo& halo, const HaloPart& part, std::uint64_t step, bool publishes) {
  const std::uint64_t generation = dev::own_word(&halo.channel.state->generation);
  if (publishes) fence_stores();
  if (generation != halo.channel.generation) return false;
  store_after_loads(part.told, step);
  wake_end(halo, part);
  return true;
}

/// A box of words.
struct WordsOfBox {
  MPIX_DEV_METHOD explicit WordsOfBox(const HaloBox& of)
      : box(of),
        begin(static_cast<std::uint32_t>(of.first * of.unit / 8)),
        count(static_cast<std::uint32_t>(of.units * of.unit / 8)),
        of_a_row(static_cast<std::uint32_t>(of.row_bytes / 8)),
        line(static_cast<std::uint32_t>(of.at / 8)) {}
  MPIX_DEV_METHOD std::uint64_t* at(std::uint32_t i) const {
    return place_in_box<std::uint64_t>(box, begin + i, of_a_row);
  }
  const HaloBox& box;
  const std::uint32_t begin, count, of_a_row;
  const std::uint32_t line;  ///< of the first
};

/// Words `first`, `first + step` … of the box, from there into lines of the message. Its units are words, or more.
MPIX_DEV_FN void pack_lines(const HaloBox& box, Line* lines, std::uint32_t tag, std::uint32_t first,
                            std::uint32_t step) {
  constexpr std::uint32_t in_flight = 4;
  const WordsOfBox words(box);
  MPIX_NO_UNROLL
  for (std::uint32_t next = first; next < words.count; next += in_flight * step) {
    std::uint64_t word[in_flight];
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint32_t k = 0; k < in_flight; ++k)
      word[k] = *words.at(next + k * step < words.count ? next + k * step : next);
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint32_t k = 0; k < in_flight; ++k)
      if (next + k * step < words.count) write_line(lines + words.line + next + k * step, word[k], tag);
  }
}

/// As wait_for_end, for lines: until all of some have come. False: the channel is broken.
MPIX_DEV_FN bool unpack_lines(const HaloBox& box, const Line* lines, std::uint32_t tag, std::uint32_t first,
                              std::uint32_t step, const MPIX_Dev_halo& halo, std::uint32_t flag, const HaloNote& note) {
  constexpr std::uint32_t in_flight = 4;
  const WordsOfBox words(box);
  MPIX_NO_UNROLL
  for (std::uint32_t next = first; next < words.count; next += in_flight * step) {
    std::uint64_t word[in_flight];
    if (!wait_for_end(halo, flag, note, [&] {
          bool have_come = true;
#if MPIX_ON_DEVICE
#pragma unroll
#endif
          for (std::uint32_t k = 0; k < in_flight; ++k) {
            const std::uint32_t n = next + k * step < words.count ? next + k * step : next;
            have_come = line_arrived(lines + words.line + n, tag, &word[k]) && have_come;
          }
          return have_come;
        }))
      return false;
#if MPIX_ON_DEVICE
#pragma unroll
#endif
    for (std::uint32_t k = 0; k < in_flight; ++k)
      if (next + k * step < words.count) *words.at(next + k * step) = word[k];
  }
  return true;
}

/// Of a message by lines, as move_side.
MPIX_DEV_FN bool move_side_by_lines(const MPIX_Dev_halo& halo, const HaloPart& part, std::uint32_t flag,
                                    const HaloNote& note, std::uint32_t mover, std::uint32_t movers) {
  const HaloSide& side = part.side;
  auto* const lines = reinterpret_cast<Line*>(side.buffer[note.step & 1]);
  const std::uint32_t tag = dev::task_tag(note.step);
  const HaloBox* box = &side.box;
  MPIX_NO_UNROLL
  for (std::uint32_t b = 0; b < side.boxes; ++b, box = halo.box + side.further_box + b - 1) {
    if (part.unpacks == 0)
      pack_lines(*box, lines, tag, mover, movers);
    else if (!unpack_lines(*box, lines, tag, mover, movers, halo, flag, note))
      return false;
  }
  return true;
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
/// index(), size(), together(what), which all enter, the first does, and all have what it says, and all(well): it is
/// with all of them. False: the channel is broken.
template <class Crew>
MPIX_DEV_CALL bool meet_blocks(const MPIX_Dev_halo& halo, std::uint32_t blocks, std::uint64_t step, const Crew& crew) {
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
  std::uint64_t sent;    ///< `sent` of all messages is known to be no less
  std::uint64_t launch;  ///< its number; 0: none that the host counts, or another word tells of its end
  std::uint64_t done;    ///< the step; 0: it is none
  bool meets;            ///< where the tables say so: they were made for as many blocks
};

/// Parts of exchange `step` are over; one thread, behind a fence of its block's stores, where they are a step's.
MPIX_DEV_FN void count_parts(const MPIX_Dev_halo& halo, std::uint32_t parts, std::uint64_t step,
                             const HaloRunner& runner) {
  HaloWords& words = *halo.words;
  if (fetch_add_on_device(&words.ended, parts) + parts != step * halo.parts) return;
  store_after_loads(&words.step, step);
  // Others may begin the next exchange as soon as `over` or `done` lets them, and find the number of this one.
  if (runner.launch != 0) {
    fence_on_device();
    store_after_loads(&words.over, runner.launch);
  }
  if (runner.done == 0) return;
  fence_stores();
  store_after_loads(&words.done, runner.done);
  wake_waiters(halo);
}

/// The part, which stands for `weight` parts of the tables, and lies where all threads of the block see it. False: the
/// channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_part(const MPIX_Dev_halo& halo, const HaloPart& part, std::uint32_t weight,
                               std::uint32_t first_block, std::uint64_t step, const HaloRunner& runner,
                               const Crew& crew) {
  const bool unpacks = part.unpacks != 0;
  const std::uint32_t flag = unpacks ? halo.messages + part.message : part.message;
  const bool by_memory = part.told != nullptr, by_lines = part.by_lines != 0;
  const std::uint32_t halves = by_memory ? halves_by_memory : halo.halves;
  const std::uint64_t awaited = unpacks ? step : step > halves ? step - halves : 0;
  const bool is_there = unpacks ? by_lines : awaited <= (by_memory ? 0 : runner.sent);
  const HaloNote note{step, first_block};
  if (!is_there && !crew.together([&] {
        return by_memory ? wait_for_end(halo, flag, note, [&] { return load_acquire(part.awaited) >= awaited; })
                         : dev::wait_for_flag(halo.channel, flag, awaited, note.packed()) == dev::Post::ok;
      }))
    return false;
  const std::uint32_t mover = part.part * crew.size() + crew.index(), movers = part.parts * crew.size();
  if (!by_lines)
    move_side(part.side, halo.box, part.side.buffer[step & 1], unpacks, mover, movers);
  else if (!crew.all(move_side_by_lines(halo, part, flag, note, mover, movers)))
    return false;
  if (part.met != 0 && runner.meets && !meet_blocks(halo, runner.blocks, step, crew)) return false;
  return crew.together([&] {
    // Lines tell of themselves, and what came in them is read by those that wait for a step, or for the launch.
    const bool tells = unpacks || !by_lines, publishes = !by_lines || (unpacks && runner.done != 0);
    bool is_last = tells, well = true;
    if (tells && part.side.parts > 1) {
      if (publishes) fence_stores();
      is_last = fetch_add_on_device(halo.words->arrived + flag, weight) + weight == step * part.side.parts;
    }
    if (is_last)
      well = by_memory ? tell_end(halo, part, step, publishes)
                       : dev::set_flag(halo.channel, flag, step, true) == dev::Post::ok;
    if (!tells) wake_end(halo, part);
    count_parts(halo, weight, step, runner);
    return well;
  });
}

template <class Crew>
MPIX_DEV_FN void copy_together(HaloPart& to, const HaloPart& from, const Crew& crew) {
#if MPIX_ON_DEVICE
  auto* const words = reinterpret_cast<std::uint64_t*>(&to);
  const auto* const source = reinterpret_cast<const std::uint64_t*>(&from);
  for (std::uint32_t i = crew.index(); i < sizeof to / sizeof *words; i += crew.size()) words[i] = source[i];
  crew.meet();
#else
  (void)crew;
  to = from;
#endif
}

#if MPIX_ON_DEVICE
#define MPIX_OF_BLOCK __shared__
#else
#define MPIX_OF_BLOCK
#endif

/// The block's parts among those from `first` to `end`.
template <class Crew>
MPIX_DEV_FN bool run_halo_parts(const MPIX_Dev_halo& halo, std::uint32_t first, std::uint32_t end, std::uint64_t step,
                                const HaloRunner& runner, const Crew& crew) {
  MPIX_OF_BLOCK HaloPart part;
  MPIX_NO_UNROLL
  for (std::uint32_t p = first + runner.block; p < end; p += runner.blocks) {
    copy_together(part, halo.part[p], crew);
    if (!run_halo_part(halo, part, 1, (p - first - part.part) % runner.blocks, step, runner, crew)) return false;
  }
  return true;
}

/// One block packs, or unpacks, a message of the program.
template <class Crew>
MPIX_DEV_FN bool run_halo_message(const MPIX_Dev_halo& halo, std::uint32_t given, bool unpacks, std::uint64_t step,
                                  const HaloRunner& runner, const Crew& crew) {
  MPIX_OF_BLOCK HaloPart part;
  MPIX_NO_UNROLL
  for (std::uint32_t m = halo.first[given]; m < halo.first[given + 1]; ++m) {
    const HaloPart& whole = unpacks ? halo.message[m].recv : halo.message[m].send;
    if (whole.side.parts == 0) continue;  // to or from nobody
    copy_together(part, whole, crew);
    if (!run_halo_part(halo, part, part.side.parts, runner.block, step, runner, crew)) return false;
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
  std::uint64_t sent;      ///< MPI was done with the sends of that exchange, of all messages
};

/// Step `number` is ready, and all blocks have ended the exchange before it. False: it will never be, or the channel is
/// broken. One thread.
///
/// The program may make several steps ready, and `arrived`, `ended` and meetings count one at a time: with a block that
/// is ahead the last part of an exchange would not be told of, and others would wait for it, and with them their parts
/// of the next.
MPIX_DEV_FN bool wait_until_ready(const HaloRun& run, std::uint64_t number, std::uint64_t exchange_before) {
  HaloWords& words = *run.halo.words;
  bool is_ready = false;
  const bool well = wait_in_halo(run.halo, halo_ready_flag(run.halo), HaloNote{number, 0}, [&] {
    const bool is_stopped = load_acquire(&words.stopped) >= run.launch;
    is_ready = load_acquire(&words.ready) >= number;
    return (is_ready || is_stopped) && load_acquire(&words.step) >= exchange_before;
  });
  return well && is_ready;
}

/// False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_block(const HaloRun& run, std::uint32_t block, const Crew& crew) {
  HaloWords& words = *run.halo.words;
  const std::uint64_t before = load_relaxed(&words.step);
  const bool is_gated = run.is_gated != 0;
  bool well = true;
  MPIX_NO_UNROLL
  for (std::uint64_t i = 1; i <= run.steps; ++i) {
    if (is_gated && !crew.together([&] { return wait_until_ready(run, run.ready + i, before + i - 1); })) break;
    const HaloRunner runner{block, run.blocks, run.sent, is_gated ? 0 : run.launch, is_gated ? run.ready + i : 0, true};
    well = run_halo_parts(run.halo, run.first_part, run.end_part, before + i, runner, crew);
    if (!well) break;
  }
  if (!is_gated) return well;
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
