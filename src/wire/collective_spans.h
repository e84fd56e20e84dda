// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>

#include "wire/reduction.h"

/// Pieces of buffers that collectives read where they lie, and combine.
namespace mpix {

struct Span {
  std::uint64_t begin, bytes;
};

/// Part `index` of `count` that are alike, and hold whole elements.
MPIX_FN Span cut(Span all, std::uint32_t index, std::uint32_t count) {
  constexpr std::uint64_t unit = 64;
  const std::uint64_t each = ((all.bytes + count - 1) / count + unit - 1) / unit * unit;
  const std::uint64_t begin = index * each < all.bytes ? index * each : all.bytes;
  const std::uint64_t end = begin + each < all.bytes ? begin + each : all.bytes;
  return {all.begin + begin, end - begin};
}

/// What `count` sources have, combined in their order, into targets [first, end). `From` and `To`: of a number, where
/// it lies; a target may be null, and is none.
template <class From, class To>
class CombinedSpans {
 public:
  MPIX_STEP CombinedSpans(Workers workers, Operation operation, Element element, const From& from, std::uint32_t count,
                          const To& to, std::uint32_t first, std::uint32_t end)
      : workers_(workers),
        operation_(operation),
        element_(element),
        from_(from),
        count_(count),
        to_(to),
        first_(first),
        end_(end) {}

  MPIX_STEP void run(Span span) const {
    std::uintptr_t odd = 0;
    for (std::uint32_t i = 0; i < count_; ++i) odd |= reinterpret_cast<std::uintptr_t>(from_(i) + span.begin);
    for (std::uint32_t i = first_; i < end_; ++i)
      if (const char* const to = to_(i)) odd |= reinterpret_cast<std::uintptr_t>(to + span.begin);
    std::uint64_t done = 0;
    if (odd % 16 == 0) {
      done = combine_quads<4>(span, 0);
      done = combine_quads<1>(span, done);
    }
    combine_words(Span{span.begin + done, span.bytes - done});
  }

 private:
  /// As many bytes as so many quads a worker and turn go into; returns how far it has come.
  template <std::uint32_t quads>
  MPIX_STEP std::uint64_t combine_quads(Span span, std::uint64_t done) const {
    const std::uint64_t turn = std::uint64_t{16} * quads * workers_.size;
    for (; done + turn <= span.bytes; done += turn) {
      const std::uint64_t at = span.begin + done + 16 * workers_.index;
      std::uint64_t result[2 * quads], next[2 * quads];
      load_quads<quads>(result, from_(0) + at);
      if (count_ > 1) load_quads<quads>(next, from_(1) + at);
      for (std::uint32_t i = 1; i < count_; ++i) {
        std::uint64_t after[2 * quads] = {};
        if (i + 1 < count_) load_quads<quads>(after, from_(i + 1) + at);
        combine<2 * quads>(operation_, element_, result, next);
        MPIX_UNROLL
        for (std::uint32_t k = 0; k < 2 * quads; ++k) next[k] = after[k];
      }
      for (std::uint32_t i = first_; i < end_; ++i)
        if (char* const to = to_(i)) store_quads<quads>(to + at, result);
    }
    return done;
  }
  template <std::uint32_t quads>
  MPIX_STEP void load_quads(std::uint64_t* words, const char* from) const {
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < quads; ++i) load_pair(from + std::uint64_t{16} * i * workers_.size, words + 2 * i);
  }
  template <std::uint32_t quads>
  MPIX_STEP void store_quads(char* to, const std::uint64_t* words) const {
    MPIX_UNROLL
    for (std::uint32_t i = 0; i < quads; ++i) store_pair(to + std::uint64_t{16} * i * workers_.size, words + 2 * i);
  }

  /// What is left, or not aligned: two words a turn, so that all elements are whole.
  MPIX_STEP void combine_words(Span span) const {
    const std::uint64_t words = (span.bytes + 7) / 8;
    for (std::uint64_t i = 2 * workers_.index; i < words; i += 2 * workers_.size) {
      std::uint64_t result[2] = {}, next[2] = {};
      const bool both = i + 1 < words;
      for (std::uint32_t k = 0; k < count_; ++k) {
        const char* const from = from_(k) + span.begin;
        next[0] = load_word(from, i, span.bytes);
        if (both) next[1] = load_word(from, i + 1, span.bytes);
        if (k == 0) {
          result[0] = next[0];
          result[1] = next[1];
        } else {
          combine<2>(operation_, element_, result, next);
        }
      }
      for (std::uint32_t k = first_; k < end_; ++k) {
        char* const to = to_(k);
        if (!to) continue;
        store_word(to + span.begin, i, span.bytes, result[0]);
        if (both) store_word(to + span.begin, i + 1, span.bytes, result[1]);
      }
    }
  }

  const Workers workers_;
  const Operation operation_;
  const Element element_;
  const From& from_;
  const std::uint32_t count_;
  const To& to_;
  const std::uint32_t first_, end_;
};

template <class From, class To>
MPIX_STEP void combine_spans(Workers workers, Operation operation, Element element, const From& from,
                             std::uint32_t count, const To& to, std::uint32_t first, std::uint32_t end, Span span) {
  CombinedSpans<From, To>(workers, operation, element, from, count, to, first, end).run(span);
}

}  // namespace mpix
