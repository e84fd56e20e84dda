// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/network.h"

namespace mpix {

/// Writes and signals for one peer as bytes that travel, on a network that cannot write into memory of peers: records,
/// one after the other, which the peer applies in this order. The data of a write stand behind its record, in pieces
/// where one packet has no room for all; or, if so told, they come apart, in messages of their own.
struct PacketRecord {
  enum class Kind : std::uint64_t { write = 1, write_apart, add, set };
  Kind kind;
  std::uint64_t key;
  std::uint64_t offset;
  std::uint64_t amount;  ///< of bytes; of a signal its value
};

/// Records and data stand at multiples of 8.
inline std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// Fills a packet. What has no room is for the next one.
class PacketWriter {
 public:
  PacketWriter(char* to, std::size_t capacity) : to_(to), capacity_(capacity) {}

  std::size_t size() const { return size_; }

  /// What is left of a write, from `from` on, as far as there is room for it. True when that was all; else `from` is
  /// where the next packet goes on.
  bool add(const NetworkWrite& write, std::size_t& from) {
    if (sizeof(PacketRecord) > capacity_ - size_) return false;
    const std::size_t room = (capacity_ - size_ - sizeof(PacketRecord)) / 8 * 8, left = write.bytes - from;
    const std::size_t bytes = left < room ? left : room;  // pieces that others follow are whole words
    if (bytes < left && bytes < least_piece) return false;
    append({PacketRecord::Kind::write, write.memory.key, write.memory.base + write.offset + from, bytes});
    if (bytes > 0) std::memcpy(to_ + size_, static_cast<const char*>(write.source) + from, bytes);
    std::memset(to_ + size_ + bytes, 0, padded(bytes) - bytes);
    size_ += padded(bytes);
    from += bytes;
    return from == write.bytes;
  }

  /// A write whose data come apart.
  bool add_apart(const NetworkWrite& write) {
    if (sizeof(PacketRecord) > capacity_ - size_) return false;
    append({PacketRecord::Kind::write_apart, write.memory.key, write.memory.base + write.offset, write.bytes});
    return true;
  }

  bool add(const NetworkSignal& signal) {
    if (sizeof(PacketRecord) > capacity_ - size_) return false;
    append({signal.kind == NetworkSignal::Kind::add ? PacketRecord::Kind::add : PacketRecord::Kind::set,
            signal.memory.key, signal.memory.base + signal.offset, signal.value});
    return true;
  }

 private:
  void append(const PacketRecord& record) {
    std::memcpy(to_ + size_, &record, sizeof record);
    size_ += sizeof record;
  }

  static constexpr std::size_t least_piece = 64;

  char* const to_;
  const std::size_t capacity_;
  std::size_t size_ = 0;
};

/// Reads a packet, one record at a time.
class PacketReader {
 public:
  PacketReader() = default;
  PacketReader(const char* from, std::size_t size) : from_(from), size_(size) {}

  /// False: at the end, or what follows is no record.
  bool next(PacketRecord& record) {
    if (size_ - at_ < sizeof record) return false;
    std::memcpy(&record, from_ + at_, sizeof record);
    const std::size_t left = size_ - at_ - sizeof record;
    std::size_t data = 0;
    if (record.kind == PacketRecord::Kind::write) {
      if (record.amount > left || padded(record.amount) > left) return false;
      data = padded(record.amount);
    }
    data_ = from_ + at_ + sizeof record;
    at_ += sizeof record + data;
    return true;
  }
  const char* data() const { return data_; }
  bool at_end() const { return at_ == size_; }

 private:
  const char* from_ = nullptr;
  std::size_t size_ = 0;
  std::size_t at_ = 0;
  const char* data_ = nullptr;
};

}  // namespace mpix
