// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/node_memory.h"

namespace mpix {
namespace {

constexpr std::size_t alignment = 128;  // of a pack

std::size_t rounded_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Control memory of this rank, of all windows of a team: parts of blocks that peers map once. A block has room for as
/// much as all before it, so that there are few however many windows there are. One that nobody has a part of goes,
/// unless it is the newest; and all go with the last part.
class ControlBlocks final : public std::enable_shared_from_this<ControlBlocks> {
 public:
  explicit ControlBlocks(Device& device) : device_(device) {}
  ~ControlBlocks() {
    for (const Block& block : blocks_) device_.release(block.base);
  }
  ControlBlocks(const ControlBlocks&) = delete;
  ControlBlocks& operator=(const ControlBlocks&) = delete;

  struct Part {
    std::shared_ptr<char> memory;  ///< zeroed
    ExportedMemory block;
    std::uint64_t offset;  ///< there
  };
  Part take(std::size_t wanted) {
    const std::size_t bytes = rounded_up(wanted);
    Part part{};
    char* base = nullptr;
    std::size_t to_clear = 0;
    std::unique_lock<std::mutex> hold(mutex_);
    while (!has_room_for(bytes)) {
      const std::size_t all = all_bytes();
      hold.unlock();
      std::list<Block> made = new_block(std::max(bytes, all));
      hold.lock();
      blocks_.splice(blocks_.end(), made);
    }
    for (Block& block : blocks_) {
      if (block.room_for(bytes) == block.ranges.end()) continue;
      part.block = block.exported;
      part.offset = block.take(bytes);
      base = block.base + part.offset;
      to_clear = std::min<std::uint64_t>(bytes, block.used - std::min<std::uint64_t>(block.used, part.offset));
      block.used = std::max<std::uint64_t>(block.used, part.offset + bytes);
      break;
    }
    hold.unlock();
    part.memory = std::shared_ptr<char>(base, [blocks = shared_from_this()](char* its) { blocks->take_back(its); });
    if (to_clear > 0) {
      const std::vector<char> zeros(to_clear);
      device_.write(base, zeros.data(), to_clear);
    }
    return part;
  }

 private:
  /// What devices allocate is a multiple of it.
  static constexpr std::size_t page = std::size_t{2} << 20;

  struct Range {
    std::size_t bytes;
    bool is_taken;
  };
  struct Block {
    char* base;
    std::size_t bytes;
    ExportedMemory exported;
    std::map<std::size_t, Range> ranges;  ///< by offset, one behind the other; no two free ones are neighbours
    std::size_t used = 0;                 ///< what lies behind has never been a part, and is zero

    std::map<std::size_t, Range>::iterator room_for(std::size_t wanted) {
      return std::find_if(ranges.begin(), ranges.end(),
                          [wanted](const auto& at) { return !at.second.is_taken && at.second.bytes >= wanted; });
    }
    std::size_t take(std::size_t wanted) {
      const auto room = room_for(wanted);
      if (room->second.bytes > wanted) ranges[room->first + wanted] = {room->second.bytes - wanted, false};
      room->second = {wanted, true};
      return room->first;
    }
    void give_back(std::size_t offset) {
      auto range = ranges.find(offset);
      range->second.is_taken = false;
      join_with_next(range);
      if (range != ranges.begin() && !std::prev(range)->second.is_taken) join_with_next(std::prev(range));
    }
    bool is_free() const { return ranges.size() == 1 && !ranges.begin()->second.is_taken; }

   private:
    void join_with_next(std::map<std::size_t, Range>::iterator range) {
      const auto next = std::next(range);
      if (next == ranges.end() || next->second.is_taken) return;
      range->second.bytes += next->second.bytes;
      ranges.erase(next);
    }
  };

  // The device may drop parts that graphs held in any call: none is made under the lock.
  bool has_room_for(std::size_t bytes) {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [bytes](Block& block) { return block.room_for(bytes) != block.ranges.end(); });
  }
  std::size_t all_bytes() const {
    std::size_t all = 0;
    for (const Block& block : blocks_) all += block.bytes;
    return all;
  }
  std::list<Block> new_block(std::size_t bytes) {
    const std::size_t new_bytes = (bytes + page - 1) / page * page;
    const Allocation memory = device_.allocate(new_bytes);
    try {
      std::list<Block> made;
      made.push_back({memory.base, new_bytes, device_.export_memory(memory.base), {{0, {new_bytes, false}}}});
      return made;
    } catch (...) {
      device_.release(memory.base);
      throw;
    }
  }

  void take_back(const char* base) noexcept {
    char* gone = nullptr;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      const auto block = std::find_if(blocks_.begin(), blocks_.end(), [base](const Block& one) {
        return base >= one.base && base < one.base + one.bytes;
      });
      block->give_back(static_cast<std::size_t>(base - block->base));
      if (block->is_free() && std::next(block) != blocks_.end()) {
        gone = block->base;
        blocks_.erase(block);
      }
    }
    if (gone) device_.release(gone);
  }

  Device& device_;
  std::mutex mutex_;  ///< guards what follows
  std::list<Block> blocks_;
};

/// The team may outlive the device, which parts do not.
struct ExportedTeamMemory final : TeamMemory {
  std::weak_ptr<ControlBlocks> blocks;

  std::shared_ptr<ControlBlocks> blocks_of(Device& device) {
    std::shared_ptr<ControlBlocks> current = blocks.lock();
    if (!current) blocks = current = std::make_shared<ControlBlocks>(device);
    return current;
  }
};

class ExportedNodeMemory final : public NodeMemory {
 public:
  ExportedNodeMemory(Device& device, const NodeShape& shape)
      : device_(device), shape_(shape), peers_(static_cast<std::size_t>(shape.locals)) {}
  ~ExportedNodeMemory() override {
    for (char* import : imports_) device_.close_import(import);
    if (staging_.base) device_.release(staging_.base);
  }
  ExportedNodeMemory(const ExportedNodeMemory&) = delete;
  ExportedNodeMemory& operator=(const ExportedNodeMemory&) = delete;

  NodeOffer offer() override {
    NodeOffer offer{};
    offer.is_new = true;
    if (shape_.me.staged) {
      staging_ = device_.allocate(shape_.me.window_bytes);
      offer.window = device_.export_memory(staging_.base);
    } else if (shape_.me.window_bytes > 0) {
      offer.window = device_.export_memory(shape_.around->base);
      offer.window_offset = static_cast<std::uint64_t>(static_cast<const char*>(shape_.window) - shape_.around->base);
    }
    const ControlBlocks::Part control = static_cast<ExportedTeamMemory&>(*shape_.team)
                                            .blocks_of(device_)
                                            ->take(mailbox_offset(shape_.me, shape_.locals));
    control_ = control.memory;
    offer.control = control.block;
    offer.control_offset = control.offset;
    return offer;
  }

  void join(const std::vector<NodeRank>&, const NodeOffer&) override {}
  void join(const NodeRank& rank, const NodeOffer& offer) override {
    Mapped& peer = peers_[static_cast<std::size_t>(rank.local)];
    peer.rank = rank;
    peer.control = import(offer.control) + offer.control_offset;
    if (rank.window_bytes > 0) peer.window = import(offer.window) + offer.window_offset;
  }

  char* header(int local) override { return local == shape_.me.local ? control_.get() : mapped(local).control; }
  char* mailbox(int owner, int origin) override {
    const NodeRank& rank = owner == shape_.me.local ? shape_.me : mapped(owner).rank;
    return header(owner) + mailbox_offset(rank, origin);
  }
  char* window(int local) override { return mapped(local).window; }
  const char* own_staging() override { return staging_.base; }
  void say_farewell(Farewell farewell) override {
    device_.write_word(farewell_word(control_.get()), static_cast<std::uint64_t>(farewell));
  }
  Farewell farewell_of(int local) override {
    return static_cast<Farewell>(device_.read_word(farewell_word(header(local))));
  }
  std::shared_ptr<const void> own_control() const override { return control_; }

 private:
  struct Mapped {
    NodeRank rank;
    char* control = nullptr;
    char* window = nullptr;
  };

  std::size_t farewell_offset() const { return rounded_up(header_bytes(shape_.locals)); }
  std::uint64_t* farewell_word(char* control) const {
    return reinterpret_cast<std::uint64_t*>(control + farewell_offset());
  }
  std::size_t mailbox_offset(const NodeRank& owner, int origin) const {
    return farewell_offset() + alignment + static_cast<std::size_t>(origin) * rounded_up(owner.mailbox_bytes);
  }
  Mapped& mapped(int local) { return peers_[static_cast<std::size_t>(local)]; }
  char* import(const ExportedMemory& memory) {
    char* const base = device_.import_memory(memory);
    imports_.push_back(base);
    return base;
  }

  Device& device_;
  const NodeShape shape_;
  std::shared_ptr<char> control_;
  Allocation staging_{};
  std::vector<Mapped> peers_;  ///< by number on the node
  std::vector<char*> imports_;
};

}  // namespace

std::unique_ptr<TeamMemory> make_exported_team_memory() { return std::make_unique<ExportedTeamMemory>(); }

std::unique_ptr<NodeMemory> make_exported_node_memory(Device& device, const NodeShape& shape) {
  return std::make_unique<ExportedNodeMemory>(device, shape);
}

}  // namespace mpix
