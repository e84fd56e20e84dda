// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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
  f32_twice,  ///< a value and another as its number, as MPI_2REAL
  f64_twice,
};

MPIX_FN std::uint32_t words_of(Element element) {
  return element == Element::c64 || element == Element::f64_at || element == Element::i64_at ||
                 element == Element::f64_twice
             ? 2
             : 1;
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

template <class T, class Number = std::int32_t>
struct alignas(8) ValueAt {
  T value;
  Number at;
};

/// The words of one element, or of several small ones.
struct TwoWords {
  std::uint64_t word[2];
};

template <class Combine>
MPIX_FN void each_unsigned(Element element, TwoWords& a, const TwoWords& b, Combine combine) {
  switch (element) {
    case Element::i8:
    case Element::u8:
      return each<std::uint8_t, 2>(a.word, b.word, combine);
    case Element::i16:
    case Element::u16:
      return each<std::uint16_t, 2>(a.word, b.word, combine);
    case Element::i32:
    case Element::u32:
      return each<std::uint32_t, 2>(a.word, b.word, combine);
    default:
      return each<std::uint64_t, 2>(a.word, b.word, combine);
  }
}

template <class Combine>
MPIX_FN void each_small(Element element, TwoWords& a, const TwoWords& b, Combine combine) {
  switch (element) {
    case Element::i8:
      return each<std::int8_t, 2>(a.word, b.word, combine);
    case Element::i16:
      return each<std::int16_t, 2>(a.word, b.word, combine);
    default:
      return each_unsigned(element, a, b, combine);
  }
}

MPIX_FN void multiply(Element element, TwoWords& a, const TwoWords& b) {
  if (element == Element::c32) return multiply_complex<float, 2>(a.word, b.word);
  if (element == Element::c64) return multiply_complex<double, 2>(a.word, b.word);
  each_unsigned(element, a, b, Product{});
}

MPIX_FN void choose(Element element, TwoWords& a, const TwoWords& b, bool greater) {
  switch (element) {
    case Element::f32_at:
      return choose_at<ValueAt<float>, 2>(a.word, b.word, greater);
    case Element::f64_at:
      return choose_at<ValueAt<double>, 2>(a.word, b.word, greater);
    case Element::i64_at:
      return choose_at<ValueAt<std::int64_t>, 2>(a.word, b.word, greater);
    case Element::i16_at:
      return choose_at<ValueAt<std::int16_t>, 2>(a.word, b.word, greater);
    case Element::f32_twice:
      return choose_at<ValueAt<float, float>, 2>(a.word, b.word, greater);
    case Element::f64_twice:
      return choose_at<ValueAt<double, double>, 2>(a.word, b.word, greater);
    default:
      return choose_at<ValueAt<std::int32_t>, 2>(a.word, b.word, greater);
  }
}

/// What programs seldom ask for: out of the way of the rest, which it would cost registers and much code.
MPIX_SELDOM TwoWords combine_seldom(Operation operation, Element element, TwoWords a, TwoWords b) {
  switch (operation) {
    case Operation::sum:
      each_unsigned(element, a, b, Sum{});
      break;
    case Operation::product:
      multiply(element, a, b);
      break;
    case Operation::maximum:
      each_small(element, a, b, Maximum{});
      break;
    case Operation::minimum:
      each_small(element, a, b, Minimum{});
      break;
    case Operation::logical_and:
      each_unsigned(element, a, b, LogicalAnd{});
      break;
    case Operation::logical_or:
      each_unsigned(element, a, b, LogicalOr{});
      break;
    case Operation::logical_xor:
      each_unsigned(element, a, b, LogicalXor{});
      break;
    case Operation::bitwise_and:
      each<std::uint64_t, 2>(a.word, b.word, BitwiseAnd{});
      break;
    case Operation::bitwise_or:
      each<std::uint64_t, 2>(a.word, b.word, BitwiseOr{});
      break;
    case Operation::bitwise_xor:
      each<std::uint64_t, 2>(a.word, b.word, BitwiseXor{});
      break;
    case Operation::maximum_at:
      choose(element, a, b, true);
      break;
    case Operation::minimum_at:
      choose(element, a, b, false);
      break;
    case Operation::none:
    case Operation::by_function:
      break;
  }
  return a;
}

/// A sum of complex numbers is that of their parts.
MPIX_FN Element parts_of(Element element) {
  return element == Element::c64 ? Element::f64 : element == Element::c32 ? Element::f32 : element;
}

/// `ordered`: whether a sign matters. To sums and products it does not, and numbers with one may overflow.
template <bool ordered, class Combine, class Do>
MPIX_STEP bool with_numbers(Element element, Combine combine, Do&& act) {
  switch (element) {
    case Element::i32:
      act(combine, std::conditional_t<ordered, std::int32_t, std::uint32_t>{});
      return true;
    case Element::u32:
      act(combine, std::uint32_t{});
      return true;
    case Element::i64:
      act(combine, std::conditional_t<ordered, std::int64_t, std::uint64_t>{});
      return true;
    case Element::u64:
      act(combine, std::uint64_t{});
      return true;
    case Element::f32:
      act(combine, float{});
      return true;
    case Element::f64:
      act(combine, double{});
      return true;
    default:
      return false;
  }
}

/// act(combine, number) with what combines two numbers, and one of their type, for what programs often ask for: numbers
/// of 4 and 8 bytes. False: it is something else.
template <class Do>
MPIX_STEP bool with_usual(Operation operation, Element element, Do&& act) {
  switch (operation) {
    case Operation::sum:
      return with_numbers<false>(parts_of(element), Sum{}, act);
    case Operation::product:
      return with_numbers<false>(element, Product{}, act);
    case Operation::maximum:
      return with_numbers<true>(element, Maximum{}, act);
    case Operation::minimum:
      return with_numbers<true>(element, Minimum{}, act);
    default:
      return false;
  }
}

template <unsigned words>
struct CombineWords {
  std::uint64_t* into;
  const std::uint64_t* word;
  template <class Combine, class Number>
  MPIX_STEP void operator()(Combine combine, Number) const {
    each<Number, words>(into, word, combine);
  }
};

/// Words of all ranks, in the order of the ranks.
template <std::uint32_t most, std::uint32_t words>
struct CombineRanks {
  const std::uint64_t (*all)[words];  ///< by rank
  std::uint32_t ranks;
  std::uint64_t* result;
  template <class Combine, class Number>
  MPIX_STEP void operator()(Combine combine, Number) const {
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < words; ++w) result[w] = all[0][w];
    MPIX_UNROLL
    for (std::uint32_t rank = 1; rank < most; ++rank)
      if (rank < ranks) each<Number, words>(result, all[rank], combine);
  }
};

}  // namespace reduction

/// *into = *into operation *word, so many words of them: a multiple of words_of(element). All threads of a call take
/// the same branches.
template <unsigned words>
MPIX_STEP void combine(Operation operation, Element element, std::uint64_t* into, const std::uint64_t* word) {
  if (reduction::with_usual(operation, element, reduction::CombineWords<words>{into, word})) return;
  MPIX_UNROLL
  for (unsigned i = 0; i < words; i += 2) {
    const bool both = i + 1 < words;
    const reduction::TwoWords result = reduction::combine_seldom(
        operation, element, {{into[i], both ? into[i + 1] : 0}}, {{word[i], both ? word[i + 1] : 0}});
    into[i] = result.word[0];
    if (both) into[i + 1] = result.word[1];
  }
}

}  // namespace mpix
