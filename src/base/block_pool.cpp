// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "base/block_pool.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

namespace mpix {
namespace {

constexpr std::size_t step = 64, most = 1024;  // a step is a line of the cache: two blocks share none

/// Blocks of one size.
class Shelf {
 public:
  void* take(std::size_t bytes) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (free_.empty()) add_slab(bytes);
    void* const block = free_.back();
    free_.pop_back();
    return block;
  }
  void give(void* block) noexcept {
    std::lock_guard<std::mutex> hold(mutex_);
    free_.push_back(block);
  }

 private:
  static constexpr std::size_t blocks_of_slab = 32;

  void add_slab(std::size_t bytes) {
    const std::size_t blocks = blocks_of_slab * (slabs_.size() + 1);
    if (free_.capacity() < blocks) free_.reserve(2 * blocks);  // so that giving back needs no memory
    slabs_.push_back(nullptr);
    slabs_.back() = static_cast<char*>(::operator new(blocks_of_slab* bytes, std::align_val_t(step)));
    for (std::size_t i = blocks_of_slab; i > 0; --i) free_.push_back(slabs_.back() + (i - 1) * bytes);
  }

  std::mutex mutex_;
  /// Not a list through the blocks: who takes one would wait for the core that has used it last.
  std::vector<void*> free_;
  std::vector<char*> slabs_;  ///< so that tools which look for lost memory find them
};

Shelf& shelf_for(std::size_t bytes) {
  static auto* const shelves = new std::array<Shelf, most / step>;  // outlives all static objects
  return (*shelves)[(std::max<std::size_t>(bytes, 1) - 1) / step];
}

/// Sanitizers are to see where each block begins to live, and ends: a lock in it that comes again in another role would
/// look like locks taken in another order.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool pooled = false;
#else
constexpr bool pooled = true;
#endif

}  // namespace

void* take_block(std::size_t bytes) {
  if (!pooled || bytes > most) return ::operator new(bytes);
  return shelf_for(bytes).take((std::max<std::size_t>(bytes, 1) + step - 1) / step * step);
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (!block) return;
  if (!pooled || bytes > most)
    ::operator delete(block);
  else
    shelf_for(bytes).give(block);
}

}  // namespace mpix
