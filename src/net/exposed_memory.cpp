// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "net/exposed_memory.h"

#include <algorithm>
#include <cstring>

namespace mpix {

std::uint64_t ExposedMemory::add(void* base, std::size_t bytes) {
  known_[next_key_] = {static_cast<char*>(base), bytes};
  return next_key_++;
}

char* ExposedMemory::find(std::uint64_t key, std::uint64_t offset, std::uint64_t bytes) const {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  const Range& range = found->second;
  return offset <= range.bytes && bytes <= range.bytes - offset ? range.base + offset : nullptr;
}

namespace {

/// Aligned words whole, and as stores that others may poll for: mailboxes are among what is written.
void copy_words(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t size = sizeof(std::uint64_t);
  const std::size_t head = std::min(bytes, (size - reinterpret_cast<std::uintptr_t>(to) % size) % size);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + size <= bytes; at += size) {
    std::uint64_t word;
    std::memcpy(&word, from + at, size);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + at), word, __ATOMIC_RELAXED);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

}  // namespace

bool ExposedMemory::write(const PacketRecord& record, const char* data) const {
  char* const to = find(record.key, record.offset, record.amount);
  if (to && record.amount > 0) copy_words(to, data, record.amount);
  return to != nullptr;
}

bool ExposedMemory::signal(const PacketRecord& record) const {
  char* const to = find(record.key, record.offset, sizeof(std::uint64_t));
  if (!to || reinterpret_cast<std::uintptr_t>(to) % sizeof(std::uint64_t) != 0) return false;
  auto* const word = reinterpret_cast<std::uint64_t*>(to);
  if (record.kind == PacketRecord::Kind::add)
    __atomic_fetch_add(word, record.amount, __ATOMIC_RELEASE);
  else
    __atomic_store_n(word, record.amount, __ATOMIC_RELEASE);
  return true;
}

}  // namespace mpix
