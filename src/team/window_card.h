// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "device/node_memory.h"
#include "net/network.h"

namespace mpix {

/// What each rank of a window tells all others, in one exchange: what it takes to reach it from another node, and
/// whether it is well. What follows from this and the team does not travel. With what MpiBootstrap adds it makes 64
/// bytes.
struct __attribute__((packed)) WindowCard {
  std::uint32_t displacement_unit = 1;
  std::uint64_t bytes = 0;
  // For ranks of other nodes.
  std::uint64_t block_key = 0, block_base = 0;
  std::uint64_t window_key = 0, window_base = 0;
  std::uint64_t inlet = 0;  ///< its name; 0: none
  // For those of its node.
  std::uint64_t extent_page : 40;  ///< where the window lies (NodeExtent), from the least rank of a group
  std::uint64_t extent_entry : 16;
  std::uint64_t has_block : 1;    ///< ranks of other nodes may write into its block
  std::uint64_t misses_some : 1;  ///< it cannot map the memory of some rank of its group

  WindowCard() : extent_page(0), extent_entry(0), has_block(0), misses_some(0) {}

  void set_block(const RemoteMemory& memory) {
    block_key = memory.key;
    block_base = memory.base;
    has_block = 1;
  }
  RemoteMemory block() const { return {block_key, block_base}; }
  void set_window(const RemoteMemory& memory) {
    window_key = memory.key;
    window_base = memory.base;
  }
  RemoteMemory window() const { return {window_key, window_base}; }

  static constexpr std::uint64_t extent_unit = 4096;
  void set_extent(const NodeExtent& extent) {
    extent_page = extent.offset / extent_unit;
    extent_entry = extent.entry;
  }
  NodeExtent extent() const { return {extent_page * extent_unit, static_cast<std::uint32_t>(extent_entry)}; }
};
static_assert(sizeof(WindowCard) == 60, "it travels with the creation of each window");

}  // namespace mpix
