// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "wire/collective.h"

namespace mpix {

/// Which way calls go on a node, as it was measured (mpix-tune). A text:
///
///     libmpix-ways 1
///     # kind ranks sharers bytes way blocks
///     allreduce 2 1 256k lines 0
///     allreduce 2 1 64m direct 32
///
/// A line is for calls of `bytes` of a block and less, down to the line before it of the same kind, ranks on the node,
/// and ranks that share a GPU (1 on host streams, too). Blocks 0: as many as without a table. A call that no line is
/// for, as one that is larger than all of its lines, goes as without a table. All ranks have the same table, as all
/// have to choose the same.
class WayTable {
 public:
  static constexpr std::uint32_t most_blocks = 64;

  struct Choice {
    CollectiveWay way;
    std::uint32_t blocks;
  };

  WayTable() = default;
  /// Throws Error with `name`, the line, and what was expected there.
  WayTable(const std::string& text, const std::string& name);
  /// As MPIX_COLL_TABLE names it.
  static WayTable from_file(const std::string& path);

  /// Null: none.
  const Choice* find(CollectiveKind kind, std::uint32_t ranks, std::uint32_t sharers, std::uint64_t bytes) const;
  /// Of what it says. 0: nothing.
  std::uint64_t fingerprint() const;

 private:
  struct Key {
    CollectiveKind kind;
    std::uint32_t ranks, sharers;
    bool operator==(const Key& other) const {
      return kind == other.kind && ranks == other.ranks && sharers == other.sharers;
    }
  };
  struct Line {
    Key key;
    std::uint64_t bytes;
    Choice choice;
  };
  std::vector<Line> lines_;  ///< those of a key by size
};

}  // namespace mpix
