// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "halo_words.h"
#include "notify.h"

/// How the bytes of a message by MPI, or of either end of one by memory, come from boxes and go there.
namespace mpix {

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
      dev::Waiter{halo.bell, c.hooks, noted_at},
      [&] { return dev::channel_note(dev::ChannelWait::flag, note.packed()); }, [&] { return dev::is_released(c); },
      done);
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

}  // namespace mpix
