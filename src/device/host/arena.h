// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "device/host/shared_memory.h"
#include "device/node_memory.h"
#include "device/shared_file.h"

namespace mpix {

/// A file that the ranks of a team share on a node, for all of their windows: each window has a place in it, which the
/// rank that made the file chooses.
///
/// A place is used again when all ranks of its window have left it, and no sooner: a peer may write into it late, and
/// that must not be into another window. They count in a word of the place's entry, in the anchor (SharedFile):
///
/// | bits     | say                               | written by |
/// |----------|-----------------------------------|------------|
/// | touched  | some rank has mapped the place    | a rank, before it does |
/// | the rest | ranks that have left; one more: its memory is given back, and it is free | a rank, acquiring and releasing; the last one twice, the memory being given back in between |
///
/// Behind the anchor: a byte for each entry and rank of the node, its farewell, `none` again before it leaves. They are
/// apart from the places, so that a window without epochs can end without ever mapping its own.
class Arena {
 public:
  /// `id`: of no other arena, of any time, that these processes may know. `locals`: ranks of the node that a window has
  /// here.
  Arena(std::shared_ptr<SharedFile> file, std::uint64_t id, int locals)
      : file_(std::move(file)), id_(id), locals_(static_cast<std::uint32_t>(locals)) {}

  SharedFile& file() { return *file_; }
  std::uint64_t id() const { return id_; }
  /// Enough for the windows that threads may be creating now.
  bool has_room();
  /// For a window of so many ranks. Throws Error.
  NodeExtent take(std::uint64_t bytes, std::uint32_t ranks);
  /// No rank has opened it.
  void give_back(const NodeExtent& place);

  void touch(const NodeExtent& place);
  void leave(const NodeExtent& place, std::uint64_t bytes, std::uint32_t ranks) noexcept;
  /// Throws Error where it cannot be mapped, the first time.
  unsigned char& farewell(const NodeExtent& place, int local);

 private:
  struct Taken {
    NodeExtent place;
    std::uint64_t bytes;
    std::uint32_t ranks;
  };
  static constexpr std::uint32_t touched = 1u << 31;
  static std::uint32_t entries() { return static_cast<std::uint32_t>(SharedFile::page() / sizeof(std::uint32_t)); }
  std::uint32_t& entry(std::uint32_t index) { return reinterpret_cast<std::uint32_t*>(file_->anchor())[index]; }
  void collect();
  std::uint64_t farewells_bytes() const { return std::uint64_t{entries()} * locals_; }
  std::uint64_t places_offset() const { return SharedFile::page() + SharedFile::in_pages(farewells_bytes()); }

  const std::shared_ptr<SharedFile> file_;
  const std::uint64_t id_;
  const std::uint32_t locals_;
  std::mutex mutex_;
  char* farewells_ = nullptr;  ///< until the file ends; null: not mapped yet
  std::list<Taken> taken_;     ///< by offset
};

/// The arena for the next window of a team: the same on all ranks of a group; none where one could not join it.
struct TeamArena final : TeamMemory {
  std::shared_ptr<Arena> current;  ///< null: none yet
};

/// Of one window, in an arena. A place in it:
///   header of each rank of the node, in pages | by pairs of ranks of the group: the mailboxes of the two | staging
///   memory of each
std::unique_ptr<NodeMemory> make_arena_node_memory(SharedMemory& memory, const NodeShape& shape);

}  // namespace mpix
