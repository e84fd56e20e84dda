// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "mpix_device/memory.h"

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

  /// How long it was. What came from a peer is applied only within the message's own room and the window: throws Error
  /// where it says otherwise, and then has written nothing beyond either.
  static std::size_t scatter(const char* from, std::size_t room, char* window, std::size_t window_bytes) {
    std::uint64_t count = 0;
    if (room >= head) std::memcpy(&count, from, head);
    if (room < head || count > (room - head) / sizeof(Entry)) fail();
    const char* entry = from + head;
    const char* data = entry + count * sizeof(Entry);
    std::size_t left = room - head - count * sizeof(Entry);
    for (std::uint64_t i = 0; i < count; ++i) {
      Entry described;
      std::memcpy(&described, entry, sizeof described);
      if (described.offset > window_bytes || described.bytes > window_bytes - described.offset ||
          described.bytes > left)
        fail();
      std::memcpy(window + described.offset, data, described.bytes);
      entry += sizeof described;
      data += padded(described.bytes);
      left -= std::min<std::size_t>(left, padded(described.bytes));
    }
    return static_cast<std::size_t>(data - from);
  }

 private:
  struct Entry {
    std::uint64_t offset, bytes;
  };
  static std::size_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }
  [[noreturn]] static void fail() { throw Error(Fault::other, "a message from it makes no sense"); }
};

/// A message whose words say by themselves that they have arrived: 7 bytes of data each, and a mark in the last byte.
/// The reader wipes what it has read, so a word with a mark is new, in any epoch: no flag that could repeat. Words may
/// arrive in any order; each whole, or its last byte last, and once (Network::keeps_words_whole, read_still).
///
/// The first word is the front: how many words there are, with itself, and how many posts its sender has told in such
/// messages so far (RemotePeers).
class MarkedMessage {
 public:
  struct Front {
    std::uint32_t words;
    std::uint32_t posts;
  };
  static constexpr std::size_t most_words = (std::size_t{1} << 24) - 1;

  static std::size_t words_for(std::size_t bytes) { return 1 + (bytes + data_bytes - 1) / data_bytes; }
  /// The data that so many words can hold.
  static std::size_t capacity(std::size_t words) { return words > 1 ? (words - 1) * data_bytes : 0; }

  static void write(std::uint64_t* to, Front front, const char* data, std::size_t bytes) {
    to[0] = mark | std::uint64_t{front.words} << 32 | front.posts;
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += data_bytes) *++to = mark | (load(data + i, 8) & (mark - 1));
    for (; i < bytes; i += data_bytes) *++to = mark | load(data + i, bytes - i < data_bytes ? bytes - i : data_bytes);
  }

  /// False: it has not arrived.
  static bool read_front(const std::uint64_t* from, Front* front) {
    const std::uint64_t word = load_acquire(from);
    if (!(word & mark)) return false;
    *front = {static_cast<std::uint32_t>(word >> 32 & most_words), static_cast<std::uint32_t>(word)};
    return true;
  }

  /// Read words *done … `words` - 1 as far as they have arrived, in order; the data, and up to a byte more, goes to
  /// `to`. True when that was all.
  static bool read(const std::uint64_t* from, std::size_t words, std::size_t* done, char* to) {
    for (std::size_t i = *done; i < words; ++i) {
      const std::uint64_t word = load_acquire(from + i);
      if (!(word & mark)) {
        *done = i;
        return false;
      }
      std::memcpy(to + (i - 1) * data_bytes, &word, 8);  // the next one overwrites the mark
    }
    *done = words;
    return true;
  }

  /// Before the sender may write there again.
  static void wipe(std::uint64_t* words, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) __atomic_store_n(words + i, 0, __ATOMIC_RELAXED);
  }

 private:
  static constexpr std::size_t data_bytes = 7;
  static constexpr std::uint64_t mark = std::uint64_t{1} << 56;  // in the last byte: such networks are little-endian's

  static std::uint64_t load(const char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
  }
};

}  // namespace mpix
