// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "notify/halo_segment.h"

namespace mpix {
namespace {

/// Buffers begin at multiples of it: more than any unit of boxes.
constexpr std::uint64_t apart = 256;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + apart - 1) / apart * apart; }

}  // namespace

HaloSegment::HaloSegment(Device& device, const std::vector<HaloCargo>& cargo, const std::vector<bool>& by_memory,
                         const std::vector<bool>& may_take_lines)
    : device_(device), unmaps_later_(device), buffers_(cargo.size()) {
  std::uint64_t bytes = rounded(sizeof(dev::ChannelHost) + cargo.size() * sizeof(HaloEndWords));
  for (std::size_t k = 0; k < cargo.size(); ++k) {
    if (!by_memory[k]) continue;
    for (std::uint64_t& at : buffers_[k]) {
      at = bytes;
      bytes += rounded(cargo[k].recv_bytes * (may_take_lines[k] ? sizeof(Line) / sizeof(std::uint64_t) : 1));
    }
  }
  memory_ = device_.allocate(bytes);
}

HaloSegment::~HaloSegment() {
  if (is_abandoned_) return;
  for (char* const one : mapped_) device_.close_import(one);
  device_.release(memory_.base);
}

char* HaloSegment::map(const ExportedMemory& exported) {
  mapped_.reserve(mapped_.size() + 1);
  mapped_.push_back(device_.import_memory(exported));
  return mapped_.back();
}

}  // namespace mpix
