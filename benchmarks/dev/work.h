// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cstddef>
#include <cstdint>

#include "support/domain.h"
#include "team.h"

/// The computations of the dCUDA paper's overlap benchmark, in units. One of
///
///   roots  is a step of Newton and Raphson for 128 square roots: 128 divisions. It is bound by arithmetic
///   copy   copies 1 kB from memory to memory. It is bound by memory
///
/// Both are exact on every compiler: factors are powers of two, and divisions are rounded as IEEE 754 says.
namespace work {

enum class Kind { roots, copy };

/// Numbers of a unit: roots, or words of 8 bytes that are copied.
constexpr int width = 128;

/// Of one rank. Sums of roots, so that each iteration's are used. And what is copied: `units` of it, through which the
/// iterations go in turns, so that caches do not hold what is copied next.
struct Memory {
  double* sums;
  const std::uint64_t* from;
  std::uint64_t* to;
  int units;
};

MPIX_FN double square_of(int rank, int index, int iteration) {
  return static_cast<double>(1 + (rank * 31 + index * 7 + iteration) % 1021);
}
MPIX_FN double closer_root(double square, double root) { return 0.5 * (root + square / root); }

MPIX_FN double root_after(double square, int units) {
  double root = square;
  for (int unit = 0; unit < units; ++unit) root = closer_root(square, root);
  return root;
}

MPIX_DEV_FN void add_roots(const Memory& memory, int rank, int iteration, int units) {
  const team::Team team = team::here();
  for (int i = team.index; i < width; i += team.size)
    memory.sums[i] += root_after(square_of(rank, i, iteration), units);
}

/// What a thread loads of several units before it stores, as it waits for memory most of the time.
constexpr int units_at_once = support::ranks_are_blocks ? 4 : 1;

/// From unit `first` on, and from the first again behind the last.
MPIX_DEV_FN void copy_units(const Memory& memory, int first, int units) {
  const team::Team team = team::here();
  const auto behind = [&](int unit, int more) {
    return unit + more < memory.units ? unit + more : unit + more - memory.units;
  };
  for (int done = 0, unit = first; done < units; done += units_at_once, unit = behind(unit, units_at_once))
    for (int i = team.index; i < width; i += team.size) {
      std::uint64_t words[units_at_once];
      const auto place_of = [&](int k) { return static_cast<std::size_t>(behind(unit, k)) * width + i; };
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
      for (int k = 0; k < units_at_once; ++k)
        if (done + k < units) words[k] = memory.from[place_of(k)];
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
      for (int k = 0; k < units_at_once; ++k)
        if (done + k < units) memory.to[place_of(k)] = words[k];
    }
}

/// The units of an iteration, by all threads of a rank. Out of line: what it needs and what waits share no registers.
MPIX_DEV_CALL void compute(Kind kind, Memory memory, int rank, int iteration, int units) {
  if (kind == Kind::roots)
    add_roots(memory, rank, iteration, units);
  else
    copy_units(memory, static_cast<int>(static_cast<std::int64_t>(iteration) * units % memory.units), units);
}

/// What is copied: a number for each word of a process.
inline std::uint64_t word_at(std::size_t index) {
  return (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
}

}  // namespace work
