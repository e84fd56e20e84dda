// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "halo_param.h"
#include "layout.h"

/// Exchanges of a halo (mpix_halo.h), as blocks run them: words, and steps.
///
/// Exchanges are numbered from 1, whoever runs them: a launch each, one launch for many, or a kernel of the program.
/// Message m of n has two flags of the halo's channel; s is the number of the exchange, h the number of its buffers.
/// Where both ends reach each other's memory a message goes by memory: who packs it writes into a buffer of the rank
/// that unpacks it, of which there are two, and neither MPI nor the service has to do with it.
///
/// | word            | lies in | written by                     | read by               | order |
/// |-----------------|---------|--------------------------------|-----------------------|-------|
/// | packed: up m    | pinned  | the last block that packs m: s | the service           | each block fences, then adds to `arrived`; the last fences again, and stores |
/// | sent: down m    | pinned  | the service: s, when the send is over | blocks that pack m | pack of s waits for s - h: the buffer is MPI's until then. The launching thread may have seen it already |
/// | received: down n + m | pinned | the service: s              | blocks that unpack m  | release / acquire: the data are in the buffer |
/// | unpacked: up n + m | pinned | the last block that unpacks m: s | the service        | as packed; receive s + h is started then, into the same buffer |
/// | there, of a message by memory | where it is unpacked | the last block that packs it, at the other end: s | blocks that unpack it | as packed; acquire |
/// | room, likewise  | where it is packed | the last block that unpacks it, at the other end: s | blocks that pack it | pack of s waits for s - 2: nobody reads the buffer any more |
/// | line[], of a short message by memory | where it is unpacked | the thread that packs the word, with the tag of s | the thread that unpacks it | the word is in the line: no fence, and no `there`. Written over when `room` allows |
/// | arrived, ended  | device  | blocks: fetch and add          | the same; kernels that begin: how many exchanges are over | never reset: the last of exchange s finds s times the number of parts, or one_exchange. A message of one part has no `arrived` |
/// | over            | device  | the last block of a launch: its number | the host, to free; a launch for many, which begins when the launch before is over; steps and exchanges behind an early end, which wait for that launch: the word never falls | release / acquire, after `ended`; the program orders exchanges by themselves |
/// | ready           | device  | memory operations of the program's stream: steps whose boxes are filled | blocks of a launch for many | a memory operation comes after what is before it in its stream; acquire |
/// | stopped         | device  | likewise, after the last `ready`: the number of the launch that no step follows | the same, before they look at `ready` | acquire, both: who sees the stop sees all steps before it. A step of the next launch is made ready when that one is over |
/// | done            | device  | the last block of a step: its number | memory operations that hold the program's stream | release, after all blocks' fences, and after `ended` |
/// | meeting         | device  | blocks of a grid: fetch and add | the same             | fence, add … acquire; its highest bit turns over at each meeting (halo.h) |
/// | met             | device  | the last of a meeting: one more | the same, for what they note | none |
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
  std::uint64_t counts;          ///< what it adds to HaloWords::ended
};

/// The parts of an exchange add this to `ended`, all together; the first one what the others, with 1 each, leave. So
/// the bits from here on are a number of exchanges, and those below are 0 when none is under way.
constexpr std::uint64_t one_exchange = std::uint64_t{1} << 24;
constexpr std::uint32_t most_halo_parts = one_exchange / 2;

/// For a block that does all of a message by itself.
struct HaloMessage {
  HaloPart send, recv;
};

struct HaloWords {
  alignas(64) std::uint64_t over;
  alignas(64) std::uint64_t ended;
  std::uint64_t left;  ///< blocks of a launch for many that have
  alignas(64) std::uint64_t ready;
  std::uint64_t stopped;
  alignas(64) std::uint64_t done;
  alignas(64) std::uint64_t meeting;
  std::uint64_t met;
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

/// Of a wait for other blocks: which meeting it is and how many they are, in place of the step; and how many are
/// missing, so that of two notes the later one is less.
MPIX_FN HaloNote halo_note_of_meeting(std::uint64_t met, std::uint32_t blocks, std::uint32_t come) {
  return HaloNote{(met & 0xffffff) << 16 | (blocks & 0xffff), blocks - come};
}
MPIX_FN std::uint32_t blocks_of_meeting(const HaloNote& note) { return static_cast<std::uint32_t>(note.step & 0xffff); }

/// `done`, when no step follows: it lets pass whatever waits.
constexpr std::uint64_t no_more_steps = std::uint64_t{1} << 62;

}  // namespace mpix
