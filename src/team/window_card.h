// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "device/node_memory.h"
#include "net/network.h"

namespace mpix {

/// What each rank of a window tells all others, in one exchange: what it takes to reach it from another node, and
/// whether it is well. What follows from this and the team does not travel. It fits one packet of MpiBootstrap, of
/// 64 bytes.
struct __attribute__((packed)) WindowCard {
  std::uint32_t displacement_unit = 1;
  std::uint64_t bytes = 0;
  // For ranks of other nodes: where its doorsteps are (offnode/doorsteps.h).
  std::uint64_t table_key = 0, table_base = 0;
  // For those of its node.
  std::uint32_t slot_lines = 0, slot_packs = 0;  ///< see Ring
  std::uint64_t memory_id = 0;                   ///< of a foreseen window: NodeOffer::id
  std::uint64_t extent_page : 40;                ///< where the window lies (NodeExtent), from the least rank of a group
  std::uint64_t extent_entry : 16;
  std::uint64_t has_table : 1;      ///< ranks of other nodes may write there
  std::uint64_t misses_some : 1;    ///< it cannot map the memory of some rank of its group
  std::uint64_t shares_window : 1;  ///< peers map the window itself, for which it takes a NodeCard
  std::uint64_t is_placed : 1;      ///< there is an extent, from the least rank of a foreseen window
  std::uint64_t takes_direct : 1;   ///< from ranks of other nodes, into the window itself (Route::relayed_direct)

  WindowCard()
      : extent_page(0),
        extent_entry(0),
        has_table(0),
        misses_some(0),
        shares_window(0),
        is_placed(0),
        takes_direct(0) {}

  void set_table(const RemoteMemory& memory) {
    table_key = memory.key;
    table_base = memory.base;
    has_table = 1;
  }
  RemoteMemory table() const { return {table_key, table_base}; }

  static constexpr std::uint64_t extent_unit = 4096;
  void set_extent(const NodeExtent& extent) {
    extent_page = extent.offset / extent_unit;
    extent_entry = extent.entry;
  }
  NodeExtent extent() const { return {extent_page * extent_unit, static_cast<std::uint32_t>(extent_entry)}; }
};
static_assert(sizeof(WindowCard) == 52, "it travels with the creation of each window");

}  // namespace mpix
