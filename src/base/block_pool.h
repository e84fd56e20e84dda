// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace mpix {

/// Memory for what the calls of every epoch make and a stream's thread ends. malloc is no good at that: what another
/// thread has freed it gives back after long searches only, which took a third of the time of those calls. Blocks that
/// were freed last are given first; what was taken once stays with the process.
void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;

/// For containers and std::allocate_shared.
template <class T>
struct BlockAllocator {
  using value_type = T;
  BlockAllocator() = default;
  template <class U>
  BlockAllocator(const BlockAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) noexcept { give_block(block, count * sizeof(T)); }
  template <class U>
  bool operator==(const BlockAllocator<U>&) const noexcept {
    return true;
  }
  template <class U>
  bool operator!=(const BlockAllocator<U>&) const noexcept {
    return false;
  }
  static_assert(alignof(T) <= alignof(std::max_align_t), "blocks are aligned as those of malloc");
};

template <class T, class... Arguments>
std::shared_ptr<T> make_shared_in_block(Arguments&&... arguments) {
  return std::allocate_shared<T>(BlockAllocator<T>(), std::forward<Arguments>(arguments)...);
}

/// A base of what is made with `new`, also where it is deleted by a base of its own.
struct InBlock {
  static void* operator new(std::size_t bytes) { return take_block(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept { give_block(block, bytes); }
};

}  // namespace mpix
