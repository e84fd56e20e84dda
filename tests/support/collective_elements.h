// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "support/collective_types.h"
#include "support/random.h"

/// What the entries of the table of types do with elements. Included by collective_types.cpp only.
namespace test {
namespace {

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

[[noreturn]] void no_such(Function) { throw std::logic_error("no such operation on this type"); }

// ---- integers, also as logical values and as bytes ------------------------------------------------

template <class T>
void generate_integer(void* to, std::uint64_t random, Function function) {
  std::int64_t value = static_cast<std::int64_t>(random >> 8);
  const int choice = static_cast<int>(random % 8);
  switch (function) {
    case Function::sum:
      if (std::is_signed_v<T>) value = value % 16;  // 8 ranks: no overflow in 8 bits
      break;
    case Function::prod:
      if (std::is_signed_v<T>) value = choice == 0 ? 2 : choice % 2 ? 1 : -1;
      break;
    case Function::land:
    case Function::lor:
    case Function::lxor:
      if (choice % 2) value = 0;
      break;
    default:
      break;
  }
  store(to, static_cast<T>(value));
}

template <class T>
T combined(T a, T b, Function function) {
  using U = std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>;
  switch (function) {
    case Function::max:
      return a < b ? b : a;
    case Function::min:
      return b < a ? b : a;
    case Function::sum:
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Function::prod:
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Function::land:
      return a && b;
    case Function::lor:
      return a || b;
    case Function::lxor:
      return !a != !b;
    case Function::band:
      return static_cast<T>(a & b);
    case Function::bor:
      return static_cast<T>(a | b);
    case Function::bxor:
      return static_cast<T>(a ^ b);
    default:
      no_such(function);
  }
}

template <class T>
void combine_integer(void* result, const void* operand, Function function) {
  store(result, combined(load<T>(result), load<T>(operand), function));
}

template <class T>
bool same_value(const void* one, const void* other) {
  return std::memcmp(one, other, sizeof(T)) == 0;
}

template <class T>
void generate_logical(void* to, std::uint64_t random, Function) {
  store(to, static_cast<T>(random % 2));
}
template <class T>
void combine_logical(void* result, const void* operand, Function function) {
  const bool a = load<T>(result) != 0, b = load<T>(operand) != 0;
  store(result, static_cast<T>(function == Function::land ? a && b : function == Function::lor ? a || b : a != b));
}

// ---- floating point -------------------------------------------------------------------------------

/// Sums: of many magnitudes, so that the order shows. Products: near 1.
template <class T>
T real(std::uint64_t random, Function function) {
  const double sign = random % 2 ? 1 : -1;
  const double fraction = static_cast<double>(random >> 11) * 0x1p-53;
  if (function != Function::sum) return static_cast<T>(sign * (0.5 + fraction));
  return static_cast<T>(sign * (1 + fraction) * (static_cast<double>(1 << random / 2 % 16) / 256));
}

template <class T>
void generate_floating(void* to, std::uint64_t random, Function function) {
  store(to, real<T>(random, function));
}

// Each result is rounded: what is volatile is not contracted to a fused multiply-add, nor kept in a wider register.
template <class T>
T add(T a, T b) {
  volatile T sum = a + b;
  return sum;
}
template <class T>
T multiply(T a, T b) {
  volatile T product = a * b;
  return product;
}

template <class T>
void combine_floating(void* result, const void* operand, Function function) {
  const T a = load<T>(result), b = load<T>(operand);
  switch (function) {
    case Function::max:
      return store(result, a < b ? b : a);
    case Function::min:
      return store(result, b < a ? b : a);
    case Function::sum:
      return store(result, add(a, b));
    case Function::prod:
      return store(result, multiply(a, b));
    default:
      no_such(function);
  }
}

/// The bytes of a long double that are its value.
template <class T>
constexpr std::size_t bytes_of() {
#ifdef __x86_64__
  if (std::is_same_v<T, long double>) return 10;
#endif
  return sizeof(T);
}
template <class T>
bool same_bits(const void* one, const void* other) {
  return std::memcmp(one, other, bytes_of<T>()) == 0;
}

template <class T>
double floating_distance(const void* one, const void* other) {
  return static_cast<double>(std::fabs(load<T>(one) - load<T>(other)));
}
template <class T>
double floating_magnitude(const void* one) {
  return static_cast<double>(std::fabs(load<T>(one)));
}

template <class T>
struct Complex {
  T re, im;
};

template <class T>
void generate_complex(void* to, std::uint64_t random, Function function) {
  store(to, Complex<T>{real<T>(random, function), real<T>(mix(random), function)});
}
template <class T>
void combine_complex(void* result, const void* operand, Function function) {
  const auto a = load<Complex<T>>(result), b = load<Complex<T>>(operand);
  if (function == Function::sum) return store(result, Complex<T>{add(a.re, b.re), add(a.im, b.im)});
  if (function != Function::prod) no_such(function);
  store(result,
        Complex<T>{add(multiply(a.re, b.re), -multiply(a.im, b.im)), add(multiply(a.re, b.im), multiply(a.im, b.re))});
}
template <class T>
bool same_complex(const void* one, const void* other) {
  const auto* a = static_cast<const char*>(one);
  const auto* b = static_cast<const char*>(other);
  return same_bits<T>(a, b) && same_bits<T>(a + sizeof(T), b + sizeof(T));
}
template <class T>
double complex_distance(const void* one, const void* other) {
  const auto a = load<Complex<T>>(one), b = load<Complex<T>>(other);
  return static_cast<double>(std::hypot(a.re - b.re, a.im - b.im));
}
template <class T>
double complex_magnitude(const void* one) {
  const auto a = load<Complex<T>>(one);
  return static_cast<double>(std::hypot(a.re, a.im));
}

// ---- a value and where it is ----------------------------------------------------------------------

template <class T, class I>
struct Pair {
  T value;
  I index;
};

/// Few values, so that some are equal.
template <class T, class I>
void generate_pair(void* to, std::uint64_t random, Function) {
  using P = Pair<T, I>;
  auto* const pair = static_cast<char*>(to);
  store(pair + offsetof(P, value), static_cast<T>(static_cast<int>(random % 7) - 3));
  store(pair + offsetof(P, index), static_cast<I>(random / 7 % 1000));
}
template <class T, class I>
void combine_pair(void* result, const void* operand, Function function) {
  const auto a = load<Pair<T, I>>(result), b = load<Pair<T, I>>(operand);
  const bool better = function == Function::maxloc ? a.value < b.value : b.value < a.value;
  const bool is_lower = a.value == b.value && b.index < a.index;
  if (!better && !is_lower) return;
  using P = Pair<T, I>;
  auto* const pair = static_cast<char*>(result);
  store(pair + offsetof(P, value), b.value);
  store(pair + offsetof(P, index), b.index);
}
template <class T, class I>
bool same_pair(const void* one, const void* other) {
  const auto a = load<Pair<T, I>>(one), b = load<Pair<T, I>>(other);
  return a.value == b.value && a.index == b.index;
}

}  // namespace
}  // namespace test
