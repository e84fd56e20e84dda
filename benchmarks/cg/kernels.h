// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

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
/// Scalars stay in device memory, and what is divided there nobody else knows.
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

#if MPIX_ON_DEVICE
/// For the first thread: the sum of what all threads of the block have, always in the same order.
MPIX_DEV_FN double sum_of_block(double mine) {
  __shared__ double parts[loops::threads];
  const auto me = threadIdx.x;
  parts[me] = mine;
  __syncthreads();
  for (unsigned half = loops::threads / 2; half > 0; half /= 2) {
    if (me < half) parts[me] += parts[me + half];
    __syncthreads();
  }
  return parts[0];
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
  double some = 0;
  const volatile double* const partials = v.partials;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += loops::threads) some += partials[i];
  const double all = sum_of_block(some);
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
    loops::for_all(box.points(), block, blocks, [&](std::size_t i) { p[i] = v.r[i] + beta * p[i]; });
  }
};

struct Multiply {
  Box box;
  Vectors v;
  int blocks;
  MPIX_DEV_METHOD void operator()(int block) const {
    if (block == 0 && team::here().index == 0) next_iteration();
    const double* const p = v.p + box.plane();
    double sum = 0;
    loops::for_all(box.points(), block, blocks, [&](std::size_t i) {
      const double value = at(p + i, static_cast<unsigned>(i));
      v.q[i] = value;
      sum += p[i] * value;
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
    double sum = 0;
    loops::for_all(box.points(), block, blocks, [&](std::size_t i) {
      v.x[i] += alpha * p[i];
      const double r = v.r[i] - alpha * v.q[i];
      v.r[i] = r;
      sum += r * r;
    });
    add_up(v, block, blocks, sum, &v.scalars->own_rr);
  }
};

}  // namespace cg
