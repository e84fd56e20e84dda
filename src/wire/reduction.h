// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <cstring>

#include "wire/program.h"

/// What collectives do with two operands: MPI's predefined operations on the elements that its types consist of. Data
/// travel as words of 8 bytes, so that is what they work on: elements of less are several to a word, those of 16 are
/// two words.
namespace mpix {

enum class Operation : std::uint8_t {
  none,
  sum,
  product,
  maximum,
  minimum,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  maximum_at,
  minimum_at,
  by_function,  ///< of MPI itself or of the program; on hosts
};

enum class Element : std::uint8_t {
  bytes,  ///< no number
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f32,
  f64,
  c32,  ///< complex, of two f32
  c64,
  f32_at,  ///< a value and an int, as MPI_FLOAT_INT
  f64_at,
  i64_at,
  i32_at,
  i16_at,
};

MPIX_FN std::uint32_t words_of(Element element) {
  return element == Element::c64 || element == Element::f64_at || element == Element::i64_at ? 2 : 1;
}

namespace reduction {

/// Numbers of type T in so many words, each combined with its like.
template <class T, unsigned words, class Combine>
MPIX_FN void each(std::uint64_t* into, const std::uint64_t* word, Combine combine) {
  constexpr unsigned numbers = 8 * words / sizeof(T);
  T a[numbers], b[numbers];
  memcpy(a, into, sizeof a);
  memcpy(b, word, sizeof b);
  MPIX_UNROLL
  for (unsigned i = 0; i < numbers; ++i) a[i] = combine(a[i], b[i]);
  memcpy(into, a, sizeof a);
}

struct Sum {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
  MPIX_FN std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {  // as int it could overflow
    return static_cast<std::uint16_t>(std::uint32_t{a} * b);
  }
};
struct Maximum {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Minimum {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct LogicalAnd {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return static_cast<T>(a != 0 && b != 0);
  }
};
struct LogicalOr {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return static_cast<T>(a != 0 || b != 0);
  }
};
struct LogicalXor {
  template <class T>
  MPIX_FN T operator()(T a, T b) const {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

struct BitwiseAnd {
  MPIX_FN std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a & b; }
};
struct BitwiseOr {
  MPIX_FN std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a | b; }
};
struct BitwiseXor {
  MPIX_FN std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a ^ b; }
};

/// Each product is rounded, on GPUs as on hosts: fused with the sum it would have other bits.
MPIX_FN float rounded_product(float a, float b) {
#if MPIX_ON_DEVICE
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
MPIX_FN double rounded_product(double a, double b) {
#if MPIX_ON_DEVICE
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

template <class T, unsigned words>
MPIX_FN void multiply_complex(std::uint64_t* into, const std::uint64_t* word) {
  constexpr unsigned numbers = 8 * words / sizeof(T);
  T a[numbers], b[numbers];
  memcpy(a, into, sizeof a);
  memcpy(b, word, sizeof b);
  MPIX_UNROLL
  for (unsigned i = 0; i + 1 < numbers; i += 2) {
    const T real = rounded_product(a[i], b[i]) - rounded_product(a[i + 1], b[i + 1]);
    const T imaginary = rounded_product(a[i], b[i + 1]) + rounded_product(a[i + 1], b[i]);
    a[i] = real;
    a[i + 1] = imaginary;
  }
  memcpy(into, a, sizeof a);
}

/// The greater value, or the lesser; of the same ones that with the lesser number.
template <class Pair, unsigned words>
MPIX_FN void choose_at(std::uint64_t* into, const std::uint64_t* word, bool greater) {
  constexpr unsigned words_each = sizeof(Pair) / 8;
  MPIX_UNROLL
  for (unsigned i = 0; i + words_each <= words; i += words_each) {
    Pair a, b;
    memcpy(&a, into + i, sizeof a);
    memcpy(&b, word + i, sizeof b);
    const bool takes = (greater ? a.value < b.value : b.value < a.value) || (a.value == b.value && b.at < a.at);
    MPIX_UNROLL
    for (unsigned k = 0; k < words_each; ++k) into[i + k] = takes ? word[i + k] : into[i + k];
  }
}

template <class T>
struct alignas(8) ValueAt {
  T value;
  std::int32_t at;
};

/// Numbers with a sign, too: as sums and products of these they have the same bits.
template <unsigned words, class Combine>
MPIX_FN void each_unsigned(Element element, std::uint64_t* into, const std::uint64_t* word, Combine combine) {
  switch (element) {
    case Element::i8:
    case Element::u8:
      return each<std::uint8_t, words>(into, word, combine);
    case Element::i16:
    case Element::u16:
      return each<std::uint16_t, words>(into, word, combine);
    case Element::i32:
    case Element::u32:
      return each<std::uint32_t, words>(into, word, combine);
    default:
      return each<std::uint64_t, words>(into, word, combine);
  }
}

template <unsigned words, class Combine>
MPIX_FN void each_ordered(Element element, std::uint64_t* into, const std::uint64_t* word, Combine combine) {
  switch (element) {
    case Element::i8:
      return each<std::int8_t, words>(into, word, combine);
    case Element::i16:
      return each<std::int16_t, words>(into, word, combine);
    case Element::i32:
      return each<std::int32_t, words>(into, word, combine);
    case Element::i64:
      return each<std::int64_t, words>(into, word, combine);
    case Element::f32:
      return each<float, words>(into, word, combine);
    case Element::f64:
      return each<double, words>(into, word, combine);
    default:
      return each_unsigned<words>(element, into, word, combine);
  }
}

template <unsigned words>
MPIX_FN void add(Element element, std::uint64_t* into, const std::uint64_t* word) {
  if (element == Element::f64 || element == Element::c64) return each<double, words>(into, word, Sum{});
  if (element == Element::f32 || element == Element::c32) return each<float, words>(into, word, Sum{});
  return each_unsigned<words>(element, into, word, Sum{});
}

template <unsigned words>
MPIX_FN void multiply(Element element, std::uint64_t* into, const std::uint64_t* word) {
  switch (element) {
    case Element::f32:
      return each<float, words>(into, word, Product{});
    case Element::f64:
      return each<double, words>(into, word, Product{});
    case Element::c32:
      return multiply_complex<float, words>(into, word);
    case Element::c64:
      return multiply_complex<double, words>(into, word);
    default:
      return each_unsigned<words>(element, into, word, Product{});
  }
}

template <unsigned words>
MPIX_FN void choose(Element element, std::uint64_t* into, const std::uint64_t* word, bool greater) {
  switch (element) {
    case Element::f32_at:
      return choose_at<ValueAt<float>, words>(into, word, greater);
    case Element::f64_at:
      return choose_at<ValueAt<double>, words>(into, word, greater);
    case Element::i64_at:
      return choose_at<ValueAt<std::int64_t>, words>(into, word, greater);
    case Element::i16_at:
      return choose_at<ValueAt<std::int16_t>, words>(into, word, greater);
    default:
      return choose_at<ValueAt<std::int32_t>, words>(into, word, greater);
  }
}

}  // namespace reduction

/// *into = *into operation *word, so many words of them: a multiple of words_of(element). All threads of a call take
/// the same branches.
template <unsigned words>
MPIX_FN void combine(Operation operation, Element element, std::uint64_t* into, const std::uint64_t* word) {
  using namespace reduction;
  switch (operation) {
    case Operation::sum:
      return add<words>(element, into, word);
    case Operation::product:
      return multiply<words>(element, into, word);
    case Operation::maximum:
      return each_ordered<words>(element, into, word, Maximum{});
    case Operation::minimum:
      return each_ordered<words>(element, into, word, Minimum{});
    case Operation::logical_and:
      return each_unsigned<words>(element, into, word, LogicalAnd{});
    case Operation::logical_or:
      return each_unsigned<words>(element, into, word, LogicalOr{});
    case Operation::logical_xor:
      return each_unsigned<words>(element, into, word, LogicalXor{});
    case Operation::bitwise_and:
      return each<std::uint64_t, words>(into, word, BitwiseAnd{});
    case Operation::bitwise_or:
      return each<std::uint64_t, words>(into, word, BitwiseOr{});
    case Operation::bitwise_xor:
      return each<std::uint64_t, words>(into, word, BitwiseXor{});
    case Operation::maximum_at:
      return choose<words>(element, into, word, true);
    case Operation::minimum_at:
      return choose<words>(element, into, word, false);
    case Operation::none:
    case Operation::by_function:
      return;
  }
}

}  // namespace mpix
