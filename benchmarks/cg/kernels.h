// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "benchmarks/collectives/loops.h"
#include "benchmarks/dev/team.h"

/// Conjugate gradients for the Laplacian of seven points in three dimensions, with zeros around the box. Each process
/// has `planes` planes of it.
///
///   p = r + rr_next / rr * p
///   q = A p,  pq = p . q         the planes around are the neighbours'
///   x += rr / pq * p,  r -= rr / pq * q,  rr_next = r . r
///
/// Scalars stay in device memory, and nobody else knows what is divided there.
namespace cg {

struct Box {
  int columns, rows, planes;
  MPIX_FN std::size_t plane() const { return static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows); }
  MPIX_FN std::size_t points() const { return plane() * static_cast<std::size_t>(planes); }
};

struct Scalars {
  double own_pq, pq;       ///< of this process, of all
  double own_rr, rr_next;  ///< the same
  double rr;               ///< the rr_next of the iteration before
  std::uint64_t iteration;
};

/// All in device memory. `p` has a plane more at both ends; what is `history` has the rr of each iteration.
struct Vectors {
  double *x, *r, *p, *q;
  const double* b;
  double* history;
  std::size_t history_size;
  Scalars* scalars;
  double* partials;      ///< of each block
  std::uint64_t* ended;  ///< blocks
};

/// At most as many as a block has threads, each of which adds up one of them; a thread of a block has some points.
inline int blocks_for(const Box& box) { return std::min(loops::blocks_for(box.points()), loops::threads); }

/// keep(i, read(i)) for all points; a thread has some of them under way at once.
template <class Read, class Keep>
MPIX_DEV_FN void for_all(std::size_t count, int block, int blocks, const Read& read, const Keep& keep) {
  const team::Team team = team::here();
  const auto size = static_cast<std::size_t>(team.size), step = size * static_cast<std::size_t>(blocks);
  std::size_t i = static_cast<std::size_t>(block) * size + static_cast<std::size_t>(team.index);
  for (; i + 3 * step < count; i += 4 * step) {
    const auto a = read(i), b = read(i + step), c = read(i + 2 * step), d = read(i + 3 * step);
    keep(i, a);
    keep(i + step, b);
    keep(i + 2 * step, c);
    keep(i + 3 * step, d);
  }
  for (; i < count; i += step) keep(i, read(i));
}

#if MPIX_ON_DEVICE
/// For the first thread: the sum of what all threads of the block have, always in the same order.
MPIX_DEV_FN double sum_of_block(double mine) {
  constexpr unsigned warp = 32, warps = loops::threads / warp;
  __shared__ double parts[warps];
  for (unsigned half = warp / 2; half > 0; half /= 2) {
#if defined(__HIP_DEVICE_COMPILE__)
    mine += __shfl_down(mine, half);
#else
    mine += __shfl_down_sync(~0u, mine, half);
#endif
  }
  if (threadIdx.x % warp == 0) parts[threadIdx.x / warp] = mine;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (const double part : parts) sum += part;
  __syncthreads();  // `parts` are those of the next call, too
  return sum;
}
#endif

/// *sum = what all threads of all blocks have. The last block that ends adds up the blocks, in their order: so the
/// result has the same bits each time.
MPIX_DEV_FN void add_up(const Vectors& v, int block, int blocks, double mine, double* sum) {
#if MPIX_ON_DEVICE
  __shared__ bool is_last;
  const double of_block = sum_of_block(mine);
  if (threadIdx.x == 0) {
    v.partials[block] = of_block;
    mpix::fence_on_device();
    is_last = mpix::fetch_add_on_device(v.ended, 1) + 1 == static_cast<std::uint64_t>(blocks);
    mpix::fence_on_device();
  }
  __syncthreads();
  if (!is_last) return;
  const volatile double* const partials = v.partials;
  const double all = sum_of_block(static_cast<int>(threadIdx.x) < blocks ? partials[threadIdx.x] : 0);
  if (threadIdx.x == 0) {
    *sum = all;
    *v.ended = 0;
  }
#else
  (void)v, (void)block, (void)blocks;  // one block, of one thread
  *sum = mine;
#endif
}

/// So that the first iteration is like the others: what it divides is 1, and what it multiplies 0.
struct Begin {
  Box box;
  Vectors v;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    loops::for_all(box.points(), block, blocks, [&](std::size_t i) {
      v.x[i] = v.q[i] = 0;
      v.r[i] = v.b[i];
    });
    loops::for_all(box.points() + 2 * box.plane(), block, blocks, [&](std::size_t i) { v.p[i] = 0; });
    if (block == 0 && team::here().index == 0) *v.scalars = Scalars{0, 1, 0, 0, 1, 0};
  }
};

struct UpdateDirection {
  Box box;
  Vectors v;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    const Scalars& s = *v.scalars;
    const double beta = s.rr > 0 ? s.rr_next / s.rr : 0;
    double* const p = v.p + box.plane();
    for_all(
        box.points(), block, blocks, [&](std::size_t i) { return v.r[i] + beta * p[i]; },
        [&](std::size_t i, double value) { p[i] = value; });
  }
};

struct Multiply {
  Box box;
  Vectors v;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    if (block == 0 && team::here().index == 0) next_iteration();
    const double* const p = v.p + box.plane();
    struct Point {
      double p, q;
    };
    double sum = 0;
    for_all(
        box.points(), block, blocks,
        [&](std::size_t i) {
          return Point{p[i], at(p + i, static_cast<unsigned>(i))};
        },
        [&](std::size_t i, const Point& point) {
          v.q[i] = point.q;
          sum += point.p * point.q;
        });
    add_up(v, block, blocks, sum, &v.scalars->own_pq);
  }

 private:
  /// No other thread of this kernel reads these.
  MPIX_DEV_METHOD void next_iteration() const {
    Scalars& s = *v.scalars;
    s.rr = s.rr_next;
    if (s.iteration < v.history_size) v.history[s.iteration] = s.rr;
    ++s.iteration;
  }
  MPIX_DEV_METHOD double at(const double* p, unsigned i) const {
    const auto columns = static_cast<unsigned>(box.columns), rows = static_cast<unsigned>(box.rows);
    const unsigned column = i % columns, row = i / columns % rows;
    const auto plane = static_cast<std::ptrdiff_t>(box.plane());
    double around = p[-plane] + p[plane];
    if (row > 0) around += p[-box.columns];
    if (row + 1 < rows) around += p[box.columns];
    if (column > 0) around += p[-1];
    if (column + 1 < columns) around += p[1];
    return 6 * *p - around;
  }
};

struct UpdateSolution {
  Box box;
  Vectors v;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    const double pq = v.scalars->pq, alpha = pq > 0 ? v.scalars->rr / pq : 0;
    const double* const p = v.p + box.plane();
    struct Point {
      double x, r;
    };
    double sum = 0;
    for_all(
        box.points(), block, blocks,
        [&](std::size_t i) {
          return Point{v.x[i] + alpha * p[i], v.r[i] - alpha * v.q[i]};
        },
        [&](std::size_t i, const Point& point) {
          v.x[i] = point.x;
          v.r[i] = point.r;
          sum += point.r * point.r;
        });
    add_up(v, block, blocks, sum, &v.scalars->own_rr);
  }
};

}  // namespace cg
