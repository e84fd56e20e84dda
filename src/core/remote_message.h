// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace mpix {

/// The small puts of an epoch to one target of another node, in one piece: the number of puts, for each its offset in
/// the window and its size, then their data, each at a multiple of 8 bytes.
struct GatheredPut {
  const void* source;
  std::uint64_t bytes;
  std::uint64_t offset;
};

class RemoteMessage {
 public:
  static constexpr std::size_t head = 8;
  /// How much longer a put makes the message.
  static std::size_t share(std::uint64_t bytes) { return sizeof(Entry) + padded(bytes); }

  static void gather(char* to, const std::vector<GatheredPut>& puts) {
    const std::uint64_t count = puts.size();
    std::memcpy(to, &count, head);
    char* entry = to + head;
    char* data = entry + count * sizeof(Entry);
    for (const GatheredPut& put : puts) {
      const Entry described{put.offset, put.bytes};
      std::memcpy(entry, &described, sizeof described);
      std::memcpy(data, put.source, put.bytes);
      entry += sizeof described;
      data += padded(put.bytes);
    }
  }

  static void scatter(const char* from, char* window) {
    std::uint64_t count;
    std::memcpy(&count, from, head);
    const char* entry = from + head;
    const char* data = entry + count * sizeof(Entry);
    for (std::uint64_t i = 0; i < count; ++i) {
      Entry described;
      std::memcpy(&described, entry, sizeof described);
      std::memcpy(window + described.offset, data, described.bytes);
      entry += sizeof described;
      data += padded(described.bytes);
    }
  }

 private:
  struct Entry {
    std::uint64_t offset, bytes;
  };
  static std::size_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }
};

}  // namespace mpix
