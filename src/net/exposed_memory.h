// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "net/packet.h"

namespace mpix {

/// The memory that peers may write into, where the network is our own code: what comes from a peer is applied only
/// within it. Keys are never used again, so what comes late hits nothing. One thread at a time.
class ExposedMemory {
 public:
  std::uint64_t add(void* base, std::size_t bytes);
  void remove(std::uint64_t key) { known_.erase(key); }

  /// Null where that is not exposed, or no more.
  char* find(std::uint64_t key, std::uint64_t offset, std::uint64_t bytes) const;
  /// Apply what a record says, each aligned word of 8 bytes as one store. False: not exposed.
  bool write(const PacketRecord& record, const char* data) const;
  /// One store, which other threads may poll for (release).
  bool signal(const PacketRecord& record) const;

 private:
  struct Range {
    char* base;
    std::size_t bytes;
  };
  std::map<std::uint64_t, Range> known_;
  std::uint64_t next_key_ = 1;
};

}  // namespace mpix
