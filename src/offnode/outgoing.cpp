// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "offnode/outgoing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "wire/memory.h"

namespace mpix {

namespace {

using Hold = std::lock_guard<std::mutex>;

}  // namespace

std::size_t Outgoing::block_bytes(std::size_t bytes) {
  std::size_t quarter = std::size_t{16} << 10;
  while (bytes > 8 * quarter) quarter *= 2;
  return std::max<std::size_t>(4, (bytes + quarter - 1) / quarter) * quarter;
}

char* Outgoing::enter(std::size_t bytes) {
  Hold hold(mutex_);
  drop_old();
  if (blocks_.empty() || blocks_.front().bytes < bytes) {
    Block block{nullptr, block_bytes(bytes), nullptr, 0, 0};
    block.memory = device_.allocate_pinned(block.bytes);
    block.registration = network_.register_source(block.memory.get(), block.bytes);
    blocks_.push_front(std::move(block));
  }
  ++blocks_.front().plans;
  return blocks_.front().memory.get();
}

void Outgoing::leave(const char* base) {
  Hold hold(mutex_);
  for (Block& block : blocks_) {
    if (block.memory.get() != base) continue;
    --block.plans;
    block.sent = load_acquire(&sent_);
  }
}

void Outgoing::drop_old() {
  if (blocks_.empty()) return;
  const std::uint64_t finished = load_acquire(&finished_);
  const auto is_over = [&](const Block& block) { return block.plans == 0 && block.sent <= finished; };
  blocks_.erase(std::remove_if(std::next(blocks_.begin()), blocks_.end(), is_over), blocks_.end());
}

Outgoing::Source Outgoing::source(const char* data) {
  Hold hold(mutex_);
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& one) {
    return data >= one.memory.get() && data < one.memory.get() + one.bytes;
  });
  return {block->registration.get(), static_cast<std::size_t>(data - block->memory.get()), block->bytes};
}

}  // namespace mpix
