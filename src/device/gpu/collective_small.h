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

template <std::uint32_t most, std::uint32_t each, bool combines, bool is_rooted>
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
  if (c.lets_next_start) gpu_let_next_start();
  // Rooted calls come one after another: what the others called before is looked at at once, whichever number it had.
  static_assert(calls_said * 8 <= asking_threads, "a line each, of as many ranks as calls by lines may have");
  const std::uint32_t asked = threadIdx.x - workers;
  SeenLine said{};
  bool looks = false;
  if constexpr (is_rooted) {
    looks = !works && asked < calls_said * ranks && asked / calls_said != me;
    if (looks) said = look_at_line(c.call_line(me, asked / calls_said, asked % calls_said));
  }
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
  if (state.rooted) {
    // As a rule it was one step, and all have begun it long ago.
    bool have_begun = is_rooted && state.several_steps == 0;
    if (looks && asked % calls_said == state.call % calls_said)
      have_begun = have_begun && said.lacks(state.call) == 0 && said.data() == state.word;
    if (!(is_rooted && crew.agree(have_begun)) && !await_rooted(c, state, part)) return;
  }
  const std::uint32_t call = state.call = next_number(state.call), step = state.step = next_number(state.step);
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
const Kernel& small_kernel(const Collective& call) {
  static const Kernel combining(run_small<most, each, true, false>), moving(run_small<most, each, false, false>);
  static const Kernel reducing(run_small<most, each, true, true>), spreading(run_small<most, each, false, true>);
  if (call.is_rooted()) return call.combines() ? reducing : spreading;
  return call.combines() ? combining : moving;
}

const Kernel& small_kernel(const Collective& call, std::uint32_t words) {
  if (call.ranks() <= 2)
    return words == 1 ? small_kernel<2, 1>(call) : words == 2 ? small_kernel<2, 2>(call) : small_kernel<2, 4>(call);
  if (call.ranks() <= 4) return words == 1 ? small_kernel<4, 1>(call) : small_kernel<4, 2>(call);
  return small_kernel<8, 1>(call);
}

void load_small_kernels() {
  const Collective any{};
  (void)small_kernel<2, 1>(any);
  (void)small_kernel<2, 2>(any);
  (void)small_kernel<2, 4>(any);
  (void)small_kernel<4, 1>(any);
  (void)small_kernel<4, 2>(any);
  (void)small_kernel<8, 1>(any);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
