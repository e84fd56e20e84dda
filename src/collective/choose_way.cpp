// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Which way a call on a node goes, in how many blocks and steps: the same on all ranks.
#include <algorithm>
#include <cstdint>

#include "collective/collectives.h"
#include "device/collective_launch.h"

namespace mpix {
namespace {

// Many small blocks begin and end sooner than few large ones: with 64 of them 4 KiB took 2.66 us for 3.04 with one,
// 32 KiB 2.77 for 3.12 with 8 (all-reduce of 2 H100, captured). 2 ranks on an H200 under MPS: with 64, 32 and 16 blocks
// 64 KiB 2.30, 2.33, 2.50, 256 KiB 3.42, 3.37, 4.86. How many blocks a direct call had best have has not been measured.
constexpr std::uint64_t words_of_a_part = 64;
constexpr std::uint64_t direct_bytes_of_a_part = 64 * 1024;
constexpr std::uint32_t least_direct_parts = 16;

// Of what a rank sends or gets. A turn of a rank is 85 to 145 us, and the ranks' copies share a link: all-reduce of 2,
// 4 and 8 ranks on an H100, calls in a row, staged and in turns: 256 KiB 125 and 171, 170 and 488, 270 and 1,180 us; 1
// MiB 433 and 171, 570 and 487, 870 and 1,182.
constexpr std::uint64_t most_staged_of_a_rank = 128 * 1024;

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

std::size_t packs_above(const Device::PackForm::Above& bytes, CollectiveKind kind) {
  if (kind == CollectiveKind::allreduce) return bytes.allreduce;
  if (kind == CollectiveKind::bcast) return bytes.bcast;
  return kind == CollectiveKind::reduce ? bytes.reduce : bytes.others;
}

}  // namespace

/// The next call of a graph starts early where it finds room beside this one. But what is too much for few blocks takes
/// longer than that gains: of 4 ranks on an H200 128 KiB took 6.7 us with 32 blocks, and 16 with 16.
std::uint32_t Collectives::most_parts_of_lines(std::uint64_t words) const {
  if (device_.parts_in_use() == 1) return 1;
  if (ways_.blocks > 0) return blocks_;  // the program has said how many
  const std::uint32_t half = std::max(1u, blocks_ / 2), ranks = prototype_.ranks();
  const std::uint32_t threads = most_sharers_ > 1 && ranks > 4 ? 384 : 512;
  const std::uint32_t words_of_a_thread = ranks <= 2 || (ranks <= 4 && most_sharers_ == 1) ? 2 : 1;
  return words <= std::uint64_t{half} * threads * words_of_a_thread ? half : blocks_;
}

/// `blocks`: 0: by size.
void Collectives::choose_lines(Collective& c, std::uint32_t blocks) const {
  const std::uint64_t words = (c.bytes + 7) / 8, room = c.places.lines;
  const std::uint64_t wanted = blocks ? blocks : (std::min(words, room) + words_of_a_part - 1) / words_of_a_part;
  // Several steps use all lines; see wire/collective.h. Each part has some.
  constexpr std::uint64_t least_lines = 8;
  c.parts = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(wanted, 1, std::min<std::uint64_t>(most_parts_of_lines(words), room / least_lines)));
  const std::uint64_t unit = least_lines * c.parts;
  c.chunk_words = words > rounded_down(room, unit) ? rounded_down(room, unit) : std::max(unit, rounded_up(words, unit));
}

/// Of a call by packs. Rooted ones have one step, but for those in shares.
bool Collectives::has_shares(const Collective& c) const {
  if (c.kind == CollectiveKind::allreduce) return c.bytes > pack_form_.shared_above_bytes;
  return c.has_root() && c.ranks() > 2 && c.bytes > std::uint64_t{c.places.packs} * Pack::words * 8;
}

/// False: it is no call that goes by packs. Else it does; `blocks`: 0: by size.
bool Collectives::choose_packs(Collective& c, std::uint32_t blocks) const {
  constexpr std::uint64_t most_bytes = std::uint64_t{16} << 30;  // what 32 bits count
  if (c.places.packs == 0 || c.kind == CollectiveKind::barrier || c.bytes == 0 || c.bytes > most_bytes) return false;
  if (c.combines() && !c.combines_usually()) return false;
  c.shared = has_shares(c);
  const std::uint64_t of_data = ((c.bytes + 7) / 8 + Pack::words - 1) / Pack::words, groups = pack_form_.groups;
  const std::uint64_t packs = c.shared ? (of_data + c.holders() - 1) / c.holders() : of_data;
  const std::uint64_t most_here = std::min<std::uint64_t>(c.places.packs / (groups * pack_form_.turns), blocks_);
  const std::uint64_t parts = std::clamp<std::uint64_t>(blocks ? blocks : (packs + groups - 1) / groups, 1, most_here);
  const std::uint64_t of_turn = parts * groups, turns = rounded_down(c.places.packs / of_turn, pack_form_.turns);
  if (c.is_rooted() && packs > turns * of_turn) {
    if (c.ranks() > 2) return false;
    c.all_hear = true;
  }
  c.packed = true;
  c.parts = c.launched = static_cast<std::uint32_t>(parts);
  c.pack_turns = static_cast<std::uint32_t>(turns);
  return true;
}

/// As much of a block as memory of the library has room for.
std::uint64_t Collectives::piece_of(const Collective& c) const {
  return rounded_down(c.places.scratch_bytes / (c.send_stride != 0 ? c.ranks() : 1), piece_unit);
}

/// `along_tree`: ranks read the result of others.
void Collectives::place_buffers(Collective& c, const Call& call, bool along_tree) const {
  const bool blocks = c.send_stride != 0;
  const std::uint64_t sent = c.bytes * (blocks ? c.ranks() : 1);
  const bool is_read = c.kind != CollectiveKind::bcast || c.me == c.root;
  const bool is_written = c.kind == CollectiveKind::allreduce || (c.kind == CollectiveKind::reduce && c.me == c.root) ||
                          (along_tree && c.kind == CollectiveKind::bcast && c.me != c.root);
  // Results would be written over what others still read.
  const bool must_be_copied = call.in_place && blocks;
  c.send_place = !is_read ? not_used : must_be_copied ? not_attached : place_of(c.send, sent);
  c.recv_place = is_written ? place_of(c.recv, c.bytes) : not_used;
  c.piece_bytes = piece_of(c);
  c.takes_from_others = sharers_ > 1;
}

std::uint32_t Collectives::direct_parts(const Collective& c, std::uint32_t blocks) const {
  const std::uint64_t most_here = device_.parts_in_use() == 1 ? 1 : blocks_;
  const std::uint64_t by_size = std::max<std::uint64_t>(least_direct_parts, c.bytes / direct_bytes_of_a_part);
  return static_cast<std::uint32_t>(std::min(most_here, blocks ? blocks : by_size));
}

/// Of a GPU that ranks use in turns; each has all of it in its turn.
std::uint32_t Collectives::guarded_parts(const Collective& c) const {
  constexpr std::uint64_t bytes_of_a_part = 16 * 1024;
  if (device_.parts_in_use() == 1) return 1;
  const std::uint64_t by_size = (c.bytes + bytes_of_a_part - 1) / bytes_of_a_part;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ways_.blocks ? ways_.blocks : by_size, 1, most_blocks));
}

/// Of a class, that is by the largest size in it. What is a poor way there for sure is none: it would have to be tried.
WayCandidates Collectives::candidates(const Collective& c) const {
  WayCandidates ways{};
  std::uint32_t size = 0;
  while (std::uint64_t{1} << size < c.bytes) ++size;
  ways.class_index = static_cast<std::uint32_t>(c.kind) * sizes_of_a_kind + size;
  constexpr std::uint64_t above = 16, below = 4;
  const std::uint64_t largest = std::uint64_t{1} << size, border = border_of(c.kind);
  const auto add = [&](bool direct, std::uint32_t parts, std::uint64_t chunk_words) {
    for (std::uint32_t i = 0; i < ways.count; ++i)
      if (ways.of[i].direct == std::uint32_t{direct} && ways.of[i].parts == parts) return;
    ways.of[ways.count++] = {direct, parts, chunk_words};
    ways.launched = std::max(ways.launched, parts);
  };
  if (device_.chooses_lines() && largest <= border * above) {
    Collective by_lines = c;
    choose_lines(by_lines, 0);
    add(false, by_lines.parts, by_lines.chunk_words);
  }
  if (largest * below > border)
    for (const std::uint32_t blocks : {16u, 32u, 64u}) add(true, direct_parts(c, blocks), 0);
  return ways;
}

bool Collectives::has_tree(const Collective& c) const {
  return !trees_.empty() && can_be_direct(c) &&
         (c.kind == CollectiveKind::allreduce || c.kind == CollectiveKind::reduce || c.kind == CollectiveKind::bcast);
}

bool Collectives::can_be_direct(const Collective& c) {
  return c.kind != CollectiveKind::barrier && c.bytes > 0 && c.ranks() > 1 && c.ranks() <= PlaceTable::most &&
         c.operation != Operation::by_function;
}

/// What cannot go the way that is forced goes as where none is.
CollectiveWay Collectives::if_possible(CollectiveWay forced, const Collective& c) const {
  const bool is_tree = forced >= CollectiveWay::gsb && forced <= CollectiveWay::btb_gsb;
  if (is_tree && !has_tree(c)) return CollectiveWay::automatic;
  Collective by_packs = c;
  if (forced == CollectiveWay::packs && !choose_packs(by_packs, 0)) return CollectiveWay::automatic;
  return forced;
}

/// False: it is no call that goes along a tree. Else it does.
bool Collectives::choose_tree(CollectiveLaunch& launch, const Call& call) const {
  Collective& c = launch.call;
  if (!has_tree(c)) return false;
  launch.tree = trees_[c.root];
  c.direct = true;
  place_buffers(c, call, true);
  c.parts = c.launched = direct_parts(c, ways_.blocks);
  return true;
}

/// Ranks that use a GPU in turns need none for such a call, and CPUs have much to move in a large one.
bool Collectives::is_staged(const Collective& c, CollectiveWay forced) const {
  if (!stages() || c.ranks() == 1 || c.operation == Operation::by_function) return false;
  const bool blocks = c.send_stride != 0 || c.recv_stride != 0;
  return forced == CollectiveWay::staged || (forced == CollectiveWay::automatic && stages_in_turns_ &&
                                             c.bytes * (blocks ? c.ranks() : 1) <= most_staged_of_a_rank * c.ranks());
}

/// Where copies are forced.
bool Collectives::is_copied(const Collective& c) {
  const bool moves_data =
      c.kind == CollectiveKind::bcast || c.kind == CollectiveKind::allgather || c.kind == CollectiveKind::alltoall;
  return moves_data && c.bytes > 0 && c.ranks() > 1;
}

void Collectives::choose_way(CollectiveLaunch& launch, const Call& call, CollectiveWay forced) const {
  Collective& c = launch.call;
  WayCandidates& ways = launch.ways;
  if (choose_tree(launch, call)) return;
  const bool is_free = can_be_direct(c) && forced == CollectiveWay::automatic;
  const WayTable::Choice* const known = is_free && ways_.table && ways_.selection != WaySelection::dynamic
                                            ? ways_.table->find(c.kind, c.ranks(), sharers_, c.bytes)
                                            : nullptr;
  CollectiveWay way = known ? known->way : forced;
  const std::uint32_t blocks_wanted = ways_.blocks ? ways_.blocks : known ? known->blocks : 0;
  // Attaching is collective: all ranks have the same number of them.
  const bool any_attached =
      std::any_of(attachments_.begin(), attachments_.end(), [](const Attachment& a) { return a.is_used; });
  const std::size_t most_by_packs = !any_attached                     ? pack_form_.most_bytes
                                    : has_shares(c)                   ? SIZE_MAX
                                    : c.is_rooted() && c.ranks() == 2 ? pack_form_.most_attached_rooted_bytes
                                                                      : pack_form_.most_attached_bytes;
  const bool is_best_by_packs = c.bytes > packs_above(pack_form_.above, c.kind) && c.bytes <= most_by_packs;
  if (way == CollectiveWay::packs || (way == CollectiveWay::automatic && is_best_by_packs)) {
    if (choose_packs(c, blocks_wanted)) return;
    way = CollectiveWay::automatic;
  }
  if (is_free && ways_.selection == WaySelection::dynamic && c.bytes >= device_.least_chosen_bytes(c.ranks())) {
    ways = candidates(c);
    if (ways.count > 1) return place_buffers(c, call, false);
    ways = {};
  }
  const bool is_large = c.bytes > border_of(c.kind);
  c.direct = can_be_direct(c) && (way == CollectiveWay::direct || (way == CollectiveWay::automatic && is_large));
  if (c.direct) {
    c.parts = direct_parts(c, blocks_wanted);
    place_buffers(c, call, false);
  } else {
    choose_lines(c, blocks_wanted);
  }
  c.launched = c.parts;
}

}  // namespace mpix
