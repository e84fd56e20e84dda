// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include "device/gpu/collective_kernel.h"

/// Most calls: one step by lines, a word for each thread, few ranks. The steps are those of wire/collective_lines.h, as
/// straight code: every load that can be under way at the same time is, and what is never needed here is not there,
/// for what a kernel takes longest for is to fetch its own code.
namespace mpix {
inline namespace GPU_NAMESPACE {

/// What the host has made sure of.
inline bool is_small(const Collective& c) {
  const std::uint64_t words = c.bytes / 8, of_part = c.chunk_words / c.parts;
  const auto is_aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 8 == 0; };
  return !c.direct && c.ranks() <= Collective::most_near && c.ranks() > 1 && c.bytes % 8 == 0 &&
         words <= c.chunk_words && of_part <= collective_threads && is_aligned(c.send) && is_aligned(c.recv) &&
         (!c.combines() || (c.element >= Element::i32 && c.element <= Element::f64)) &&
         (!c.combines() || (c.operation >= Operation::sum && c.operation <= Operation::minimum));
}

/// Words of a thread in the order of the ranks, combined.
template <std::uint32_t most>
struct CombineRanks {
  const std::uint64_t* words;
  std::uint32_t ranks;
  std::uint64_t* result;
  template <class Combine, class Number>
  __device__ void operator()(Combine combine, Number) const {
    std::uint64_t all = words[0];
    MPIX_UNROLL
    for (std::uint32_t rank = 1; rank < most; ++rank)
      if (rank < ranks) reduction::each<Number, 1>(&all, &words[rank], combine);
    *result = all;
  }
};

/// The call before was one in which not all have heard from all.
GPU_OUT_OF_LINE bool await_rooted(const Collective& c, const CollectiveState& state, std::uint32_t part) {
  return await_call_before(CollectiveBlock{c, part}, c, state);
}

template <std::uint32_t most, bool combines>
__global__ void __launch_bounds__(collective_threads) run_small(const GPU_GRID_CONSTANT Collective c) {
  const std::uint32_t part = blockIdx.x, ranks = c.ranks(), me = c.me;
  const std::uint64_t of_part = c.chunk_words / c.parts, i = part * of_part + threadIdx.x;
  const bool has = threadIdx.x < of_part && 8 * i < c.bytes;
  gpu_wait_for_front();
  gpu_let_next_start();
  CollectiveState state = load_state(c.states() + part);
  std::uint64_t sent[most];
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    // Of blocks that are all the same the first one is.
    const bool is_another = rank < ranks && (rank == 0 || c.send_stride != 0);
    sent[rank] = 0;
    if (has && is_another && (rank == me || c.send_stride == 0 || c.sends_to(rank)) && c.send != nullptr)
      sent[rank] = load_once(reinterpret_cast<const unsigned long long*>(c.send + rank * c.send_stride) + i);
  }
  if (state.rooted && !await_rooted(c, state, part)) return;
  const std::uint32_t call = state.call = next_number(state.call), step = state.step = next_number(state.step);
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    if (rank >= ranks || rank == me) continue;
    if (has && c.sends_to(rank)) write_line(c.lines(rank, me, step) + i, c.send_stride != 0 ? sent[rank] : sent[0], step);
    // By the last threads, which have least to do besides.
    if (part == 0 && threadIdx.x == blockDim.x - 1 - rank) write_line(c.call_line(rank, me, call), c.word, call);
  }
  const CollectiveBlock crew{c, part};
  bool good = true;
  const std::uint32_t asked = blockDim.x - 1 - threadIdx.x;
  if (asked < ranks && c.hears(asked)) good = calls_the_same(crew, c, call, asked);
  std::uint64_t words[most];
  bool there[most];
  const bool takes = has && c.gets_result();
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    words[rank] = c.send_stride != 0 ? sent[rank] : sent[0];
    there[rank] = !(takes && rank < ranks && c.hears(rank)) ||
                  line_arrived(c.lines(me, rank, step) + i, step, &words[rank]);
  }
  MPIX_UNROLL
  for (std::uint32_t rank = 0; rank < most; ++rank)
    if (!there[rank] && good) good = crew.await(rank, c.lines(me, rank, step) + i, step, &words[rank]);
  // Nobody writes a result before all have been asked what they call, nor before what is sent has been read.
  if (!crew.agree(good)) return;
  if (takes) {
    if constexpr (combines) {
      std::uint64_t result = 0;
      (void)reduction::with_usual(c.operation, c.element, CombineRanks<most>{words, ranks, &result});
      reinterpret_cast<std::uint64_t*>(c.recv)[i] = result;
    } else {
      MPIX_UNROLL
      for (std::uint32_t rank = 0; rank < most; ++rank)
        if (rank < ranks && (c.hears(rank) || (rank == me && c.kind != CollectiveKind::bcast)))
          reinterpret_cast<std::uint64_t*>(c.recv + rank * c.recv_stride)[i] = words[rank];
    }
  }
  const auto used = static_cast<std::uint32_t>(c.chunk_words);
  sweep(crew, c, state, step, used);
  if (state.highest < used) state.highest = used;
  leave_state(crew, c, state, 1);
}

template <std::uint32_t most>
const Kernel& small_kernel(bool combines) {
  static const Kernel combining(run_small<most, true>), moving(run_small<most, false>);
  return combines ? combining : moving;
}

inline const Kernel& kernel_for(const Collective& call) {
  static const Kernel by_lines(run_lines), direct(run_direct);
  if (call.direct) return direct;
  if (!is_small(call)) return by_lines;
  if (call.ranks() <= 2) return small_kernel<2>(call.combines());
  if (call.ranks() <= 4) return small_kernel<4>(call.combines());
  return small_kernel<8>(call.combines());
}

/// What a call by lines has to do is done by as many threads as there are words for.
inline unsigned threads_for(const Collective& call) {
  if (call.direct) return collective_threads;
  constexpr std::uint64_t warps = 64;  // as wide as any vendor's warp, and a thread for each rank of a small call
  const std::uint64_t words = call.chunk_words / call.parts / words_of(call.element);
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>((words + warps - 1) / warps * warps, warps, collective_threads));
}

inline void launch_collective(const CollectiveLaunch& launch, gpuStream_t stream) {
  const Kernel& kernel = kernel_for(launch.call);
  Collective argument = launch.call;
  // Outside of graphs it does not depend on what is in front; see Launcher::launch_posts.
  MPIX_CHECK_GPU(gpu_launch(kernel.function, dim3(launch.call.parts), threads_for(launch.call), &argument,
                            sizeof argument, stream, launch.captured && kernel.may_be_dependent));
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
