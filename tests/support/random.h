// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

/// What kernels compute, too.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TEST_FN __host__ __device__ inline
#else
#define TEST_FN inline
#endif

/// Random choices and data that every rank can compute for itself.
namespace test {

/// splitmix64.
TEST_FN std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// One number made of several.
inline std::uint64_t key(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t all = 0;
  for (std::uint64_t part : parts) all = mix(all ^ part);
  return all;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed)) {}

  std::uint64_t next() { return mix(++state_); }
  /// 0 … bound - 1
  std::size_t below(std::size_t bound) { return bound ? next() % bound : 0; }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

/// Endless data, told apart by its key: part of it can be written and compared without the rest. The same
/// code computes it on the host and in the kernels of a GPU.
class Pattern {
 public:
  TEST_FN constexpr explicit Pattern(std::uint64_t key) : key_(key) {}

  /// Told apart further by a number that is read when the stream gets to the data: so every replay of a
  /// captured iteration has data of its own.
  Pattern counted_by(const std::uint64_t* number) const {
    Pattern counted(key_);
    counted.number_ = number;
    return counted;
  }
  /// What a pattern that is counted by a number looks like when the number is this.
  TEST_FN Pattern at(std::uint64_t number) const { return Pattern(mix(key_ ^ number)); }
  TEST_FN std::uint64_t number() const { return number_ ? *number_ : 0; }

  /// A pattern to compute from: the number has been read.
  TEST_FN Pattern now() const { return number_ ? at(*number_) : *this; }
  TEST_FN std::uint64_t word(std::size_t index) const { return mix(key_ + index); }
  TEST_FN unsigned char byte(std::size_t position) const {
    return static_cast<unsigned char>(word(position / 8) >> (8 * (position % 8)));
  }

  /// to[0 … bytes) = the pattern from `position` on.
  void write(void* to, std::size_t bytes, std::size_t position = 0) const {
    const Pattern pattern = now();
    auto* out = static_cast<unsigned char*>(to);
    while (bytes > 0) {
      const std::uint64_t word = pattern.word(position / 8);
      const std::size_t skip = position % 8;
      const std::size_t part = std::min(bytes, 8 - skip);
      std::memcpy(out, reinterpret_cast<const unsigned char*>(&word) + skip, part);
      out += part;
      position += part;
      bytes -= part;
    }
  }

  /// The first byte that differs, or `bytes`.
  std::size_t agrees(const void* data, std::size_t bytes, std::size_t position = 0) const {
    const Pattern pattern = now();
    const auto* in = static_cast<const unsigned char*>(data);
    unsigned char chunk[512];
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(bytes - done, sizeof chunk);
      pattern.write(chunk, part, position + done);
      if (std::memcmp(chunk, in + done, part) != 0) {
        std::size_t i = 0;
        while (chunk[i] == in[done + i]) ++i;
        return done + i;
      }
      done += part;
    }
    return bytes;
  }

 private:
  std::uint64_t key_;
  const std::uint64_t* number_ = nullptr;
};

}  // namespace test
