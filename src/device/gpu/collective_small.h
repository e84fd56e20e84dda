// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <initializer_list>

#include "device/gpu/collective_kernel.h"

/// Most calls: one step by lines, a few words for each thread, few ranks. The steps are those of
/// wire/collective_lines.h, as straight code: every load that can be under way at the same time is, and what is never
/// needed here is not there, for what a kernel takes longest for is to fetch its own code.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// The call before was one in which not all have heard from all.
GPU_OUT_OF_LINE bool await_rooted(const Collective& c, const CollectiveState& state, std::uint32_t part) {
  return await_call_before(CollectiveBlock{c, part}, c, state);
}

/// As a rule it has been one step, and all have begun it long ago: each thread sees that for itself.
__device__ inline bool follows_soon(const Collective& c, const CollectiveState& state) {
  bool there = state.several_steps == 0;
  for (std::uint32_t rank = 0; there && rank < c.ranks(); ++rank) {
    std::uint64_t word = 0;
    there =
        rank == c.me || (line_arrived(c.call_line(c.me, rank, state.call), state.call, &word) && word == state.word);
  }
  return there;
}

template <std::uint32_t most, std::uint32_t each, bool combines>
__global__ void __launch_bounds__(most_small_threads, 1) run_small(const GPU_GRID_CONSTANT Collective c) {
  const std::uint32_t part = blockIdx.x, ranks = c.ranks(), me = c.me, workers = blockDim.x - asking_threads;
  const std::uint64_t of_part = c.chunk_words / c.parts, first = part * of_part, words = c.bytes / 8;
  const std::uint64_t last = first + of_part < words ? first + of_part : words;
  const bool works = threadIdx.x < workers;
  std::uint64_t at[each];
  bool has[each];
  MPIX_UNROLL
  for (std::uint32_t w = 0; w < each; ++w) {
    at[w] = first + threadIdx.x + std::uint64_t{w} * workers;
    has[w] = works && at[w] < last;
  }
  gpu_wait_for_front();
  gpu_let_next_start();
  CollectiveState state = load_state(c.states() + part);
  // What goes to all ranks alike is loaded once.
  const bool differ = c.send_stride != 0;
  std::uint64_t sent[most][each];
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    const bool loads = rank < ranks && (differ ? rank == me || c.sends_to(rank) : rank == 0);
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < each; ++w) {
      sent[rank][w] = 0;
      if (has[w] && loads)
        sent[rank][w] = load_once(reinterpret_cast<const unsigned long long*>(c.send + rank * c.send_stride) + at[w]);
    }
  }
  const CollectiveBlock crew{c, part};
  if (state.rooted && !crew.agree(follows_soon(c, state)) && !await_rooted(c, state, part)) return;
  const std::uint32_t call = state.call = next_number(state.call), step = state.step = next_number(state.step);
  const std::uint32_t asked = threadIdx.x - workers;
  if (!works && part == 0 && asked < ranks && asked != me) write_line(c.call_line(asked, me, call), c.word, call);
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    if (rank >= ranks || !c.sends_to(rank)) continue;
    Line* const place = c.lines(rank, me, step);
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < each; ++w)
      if (has[w]) write_line(place + at[w], differ ? sent[rank][w] : sent[0][w], step);
  }
  // While data are on their way, and by those that are the last to wait for some.
  const auto used = static_cast<std::uint32_t>(c.chunk_words);
  const Workers last_first{works ? workers - 1 - threadIdx.x : threadIdx.x, blockDim.x};
  sweep(crew, c, state, step, used, last_first);
  if (state.highest < used) state.highest = used;
  bool good = true;
  if (!works && asked < ranks && c.hears(asked)) good = calls_the_same(crew, c, c.word, call, asked);
  std::uint64_t all[most][each];
  bool there[most][each];
  const bool takes = c.gets_result();
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < each; ++w) {
      all[rank][w] = differ ? sent[rank][w] : sent[0][w];
      there[rank][w] = !(has[w] && takes && rank < ranks && c.hears(rank)) ||
                       line_arrived(c.lines(me, rank, step) + at[w], step, &all[rank][w]);
    }
  }
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    MPIX_UNROLL
    for (std::uint32_t w = 0; w < each; ++w)
      if (!there[rank][w] && good) good = crew.await(rank, c.lines(me, rank, step) + at[w], step, &all[rank][w]);
  }
  // Nobody writes a result before all have been asked what they call, nor before what is sent has been read.
  if (!crew.agree(good)) {
    (void)give_up_call(crew, c, state);
    return;
  }
  if (takes) {
    if constexpr (combines) {
      std::uint64_t result[each] = {};
      (void)reduction::with_usual(c.operation, c.element, reduction::CombineRanks<most, each>{all, ranks, result});
      MPIX_UNROLL
      for (std::uint32_t w = 0; w < each; ++w)
        if (has[w]) reinterpret_cast<std::uint64_t*>(c.recv)[at[w]] = result[w];
    } else {
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank) {
        if (rank >= ranks || !(c.hears(rank) || (rank == me && c.kind != CollectiveKind::bcast))) continue;
        MPIX_UNROLL
        for (std::uint32_t w = 0; w < each; ++w)
          if (has[w]) reinterpret_cast<std::uint64_t*>(c.recv + rank * c.recv_stride)[at[w]] = all[rank][w];
      }
    }
  }
  leave_state(crew, c, state, 1, last_first);
}

template <std::uint32_t most, std::uint32_t each>
const Kernel& small_kernel(bool combines) {
  static const Kernel combining(run_small<most, each, true>), moving(run_small<most, each, false>);
  return combines ? combining : moving;
}

const Kernel& small_kernel(const Collective& call, std::uint32_t words) {
  const bool combines = call.combines();
  if (call.ranks() <= 2)
    return words == 1   ? small_kernel<2, 1>(combines)
           : words == 2 ? small_kernel<2, 2>(combines)
                        : small_kernel<2, 4>(combines);
  if (call.ranks() <= 4) return words == 1 ? small_kernel<4, 1>(combines) : small_kernel<4, 2>(combines);
  return small_kernel<8, 1>(combines);
}

void load_small_kernels() {
  for (const bool combines : {false, true}) {
    (void)small_kernel<2, 1>(combines);
    (void)small_kernel<2, 2>(combines);
    (void)small_kernel<2, 4>(combines);
    (void)small_kernel<4, 1>(combines);
    (void)small_kernel<4, 2>(combines);
    (void)small_kernel<8, 1>(combines);
  }
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
