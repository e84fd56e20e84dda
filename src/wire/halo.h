// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "mpix_device/notify.h"

/// One exchange of a halo, as its blocks run it: words, and steps.
///
/// Message m has two flags of the halo's channel. Numbers are those of the exchange, s.
///
/// | word            | lies in | written by                     | read by               | order |
/// |-----------------|---------|--------------------------------|-----------------------|-------|
/// | step            | device  | the last block of exchange s to end: s | the blocks of the next | the stream |
/// | packed: up m    | pinned  | the last block that packs m: s | the service           | each block fences, then adds to `arrived`; the last fences again, and stores |
/// | sent: down m    | pinned  | the service: s, when the send is over | blocks that pack m | pack of s waits for s - 1: the buffer is MPI's until then |
/// | received: down n + m | pinned | the service: s              | blocks that unpack m  | release / acquire: the data are in the buffer |
/// | unpacked: up n + m | pinned | the last block that unpacks m: s | the service        | as packed; receive s + 1 is started then, into the same buffer |
/// | arrived, ended  | device  | blocks: fetch and add          | the same              | never reset: the last of exchange s finds s times the number of blocks |
///
/// Parts that pack come first, and wait for the service alone; those that unpack wait for other ranks. Block b of B
/// does parts b, b + B …: so every block has packed all of its own before it waits for another rank. Blocks are few
/// enough for all to be resident.
namespace mpix {

/// A box: rows of bytes, `rows[d]` of them in each of four directions (the last: fields), which begin `stride[d]`
/// apart.
struct HaloBox {
  char* base;
  std::uint64_t row_bytes;
  std::uint32_t rows[4];
  std::int64_t stride[4];
  std::uint64_t at;    ///< in the message
  std::uint32_t unit;  ///< 1, 2, 4, 8 or 16 bytes: what every row begins and ends at a multiple of

  MPIX_FN std::uint64_t all_rows() const { return std::uint64_t{rows[0]} * rows[1] * rows[2] * rows[3]; }
  MPIX_FN std::uint64_t bytes() const { return row_bytes * all_rows(); }
};

struct HaloMessage {
  char *send, *recv;  ///< buffers
  std::uint32_t first_send, send_boxes, first_recv, recv_boxes;
};

/// What a block does at a time.
struct HaloPart {
  std::uint32_t message, part, parts;
  std::uint32_t unpacks;  ///< or packs
};

struct HaloWords {
  std::uint64_t step, ended;
  std::uint64_t unused[6];
  std::uint64_t arrived[1];  ///< by message, and again: those that unpack; more of them behind
};

struct HaloRun {
  MPIX_Dev_channel channel;
  const HaloMessage* messages;
  const HaloBox* boxes;
  const HaloPart* parts;  ///< of all; those that pack first
  HaloWords* words;
  std::uint32_t message_count, part_count;
  std::uint32_t blocks;
};

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
  const std::uint64_t each = box.row_bytes / sizeof(Unit), all = each * box.all_rows();
  Unit* const packed = reinterpret_cast<Unit*>(message + box.at);
  for (std::uint64_t i = first; i < all; i += step) {
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
      *place = packed[i];
    else
      packed[i] = *place;
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

/// `Crew`: the threads of a block: index(), size(), and together(what), which all enter, the first does, and all have
/// what it says. False: the channel is broken.
template <class Crew>
MPIX_DEV_FN bool run_halo_part(const HaloRun& halo, const HaloPart& part, std::uint64_t step, const Crew& crew) {
  // What the tables say is here when the wait is over.
  const HaloMessage message = halo.messages[part.message];
  const bool unpacks = part.unpacks != 0;
  const std::uint32_t flag = unpacks ? halo.message_count + part.message : part.message;
  const std::uint64_t awaited = unpacks ? step : step - 1;
  const std::uint32_t first_box = unpacks ? message.first_recv : message.first_send;
  const std::uint32_t boxes = unpacks ? message.recv_boxes : message.send_boxes;
  const HaloBox first = boxes > 0 ? halo.boxes[first_box] : HaloBox{};
  if (!crew.together([&] { return dev::wait_for_flag(halo.channel, flag, awaited) == dev::Post::ok; })) return false;
  for (std::uint32_t b = 0; b < boxes; ++b)
    move_box(b == 0 ? first : halo.boxes[first_box + b], unpacks ? message.recv : message.send, unpacks,
             std::uint64_t{part.part} * crew.size() + crew.index(), std::uint64_t{part.parts} * crew.size());
  return crew.together([&] {
    fence_stores();
    bool well = true;
    if (fetch_add_on_device(halo.words->arrived + flag, 1) + 1 == step * part.parts)
      well = dev::set_flag(halo.channel, flag, step, part.parts > 1) == dev::Post::ok;
    if (fetch_add_on_device(&halo.words->ended, 1) + 1 == step * halo.part_count)
      store_release(&halo.words->step, step);
    return well;
  });
}

template <class Crew>
MPIX_DEV_FN void run_halo_block(const HaloRun& halo, std::uint32_t block, const Crew& crew) {
  const std::uint64_t step = load_relaxed(&halo.words->step) + 1;
  for (std::uint32_t p = block; p < halo.part_count; p += halo.blocks)
    if (!run_halo_part(halo, halo.parts[p], step, crew)) return;
}

}  // namespace mpix
