// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "core/exposed_memory.h"

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

bool ExposedMemory::write(const PacketRecord& record, const char* data) const {
  char* const to = find(record.key, record.offset, record.amount);
  if (to && record.amount > 0) std::memcpy(to, data, record.amount);
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
