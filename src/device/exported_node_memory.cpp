// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cstddef>
#include <memory>
#include <vector>

#include "device/node_memory.h"

namespace mpix {
namespace {

constexpr std::size_t alignment = 128;  // of a pack

std::size_t rounded_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

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
    const std::size_t bytes = mailbox_offset(shape_.me, shape_.locals);
    control_ =
        std::shared_ptr<char>(device_.allocate(bytes).base, [device = &device_](char* base) { device->release(base); });
    offer.control = device_.export_memory(control_.get());
    return offer;
  }

  void join(const std::vector<NodeRank>&, const NodeOffer&) override {}
  void join(const NodeRank& rank, const NodeOffer& offer) override {
    Mapped& peer = peers_[static_cast<std::size_t>(rank.local)];
    peer.rank = rank;
    peer.control = import(offer.control);
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

std::unique_ptr<NodeMemory> make_exported_node_memory(Device& device, const NodeShape& shape) {
  return std::make_unique<ExportedNodeMemory>(device, shape);
}

}  // namespace mpix
