// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/collective_launch.h"
#include "device/gpu/check.h"
#include "device/gpu/loaded_kernel.h"
#include "device/rail_launch.h"

/// Launches of collectives. Their kernels are compiled by themselves, as they take a compiler minutes: those of
/// collective_lines.h and collective_small.h together, and those of collective_direct.h and rail_kernel.h.
namespace mpix {
inline namespace GPU_NAMESPACE {

constexpr std::uint32_t collective_threads = 512;
/// Threads that have no words: they ask what the others have called.
constexpr std::uint32_t asking_threads = 64;
constexpr std::uint32_t most_small_threads = collective_threads + asking_threads;

const Kernel& kernel_by_lines();
const Kernel& guarded_kernel();
const Kernel& small_kernel(const Collective& call, std::uint32_t words);
const Kernel& direct_kernel();
const Kernel& chosen_kernel();
const Kernel& tree_kernel();
const Kernel& rail_kernel();
void load_small_kernels();
/// By packs; of those of a thread it has so many turns.
const Kernel& pack_kernel(const Collective& call, std::uint32_t turns);
void load_pack_kernels();
constexpr std::uint32_t pack_movers = collective_threads, pack_askers = 32;

/// A kernel that is loaded when it is first launched may have to wait for those that run, and these for a peer.
inline void load_collective_kernels() {
  (void)kernel_by_lines();
  (void)guarded_kernel();
  (void)direct_kernel();
  (void)chosen_kernel();
  (void)tree_kernel();
  load_small_kernels();
  if constexpr (gpu_has_packs) load_pack_kernels();
}
inline void load_rail_kernels() { (void)rail_kernel(); }

struct ChosenArguments {
  Collective call;
  WayCandidates ways;
};

struct TreeArguments {
  Collective call;
  TreePlace tree;
};

/// How many words a thread has; 0: it is no small call.
inline std::uint32_t small_words(const Collective& c) {
  const std::uint64_t of_part = c.chunk_words / c.parts;
  const std::uint64_t each = (of_part + collective_threads - 1) / collective_threads;
  const auto is_aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 8 == 0; };
  const bool is_usual = !c.combines() || c.combines_usually();
  const std::uint64_t most = c.ranks() <= 2 ? 4 : c.ranks() <= 4 ? 2 : 1;
  const bool is_small = !c.direct && c.ranks() > 1 && c.ranks() <= Collective::most_near && c.bytes % 8 == 0 &&
                        c.bytes / 8 <= c.chunk_words && each <= most && is_aligned(c.send) && is_aligned(c.recv);
  return is_small && is_usual ? (each <= 1 ? 1 : each <= 2 ? 2 : 4) : 0;
}

/// Ranks that share a GPU have more blocks, and smaller ones: so the calls of two communicators still run at once.
inline unsigned direct_threads(const Collective& c) {
  return c.takes_from_others ? collective_threads / 2 : collective_threads;
}

/// So many words at a time each.
inline unsigned line_threads(const Collective& c, std::uint64_t words_of_a_thread) {
  constexpr std::uint64_t warps = 64;  // as wide as any vendor's warp
  const std::uint64_t words = c.chunk_words / c.parts / words_of_a_thread;
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>((words + warps - 1) / warps * warps, warps, collective_threads));
}

inline void launch_collective(const CollectiveLaunch& launch, gpuStream_t stream) {
  Collective call = launch.call;
  if (launch.ways.count > 0) {
    ChosenArguments arguments{call, launch.ways};
    MPIX_CHECK_GPU(gpu_launch(chosen_kernel().function, dim3(launch.ways.launched), direct_threads(call), &arguments,
                              sizeof arguments, stream, launch.captured && chosen_kernel().may_be_dependent));
    return;
  }
  if (launch.tree.count > 0) {
    TreeArguments arguments{call, launch.tree};
    MPIX_CHECK_GPU(gpu_launch(tree_kernel().function, dim3(call.parts), direct_threads(call), &arguments,
                              sizeof arguments, stream, launch.captured && tree_kernel().may_be_dependent));
    return;
  }
  if constexpr (gpu_has_packs)
    if (call.packed) {
      const std::uint64_t packs = ((call.bytes + 7) / 8 + Pack::words - 1) / Pack::words;
      const std::uint64_t turns = (packs * Pack::lanes + call.parts * pack_movers - 1) / (call.parts * pack_movers);
      const Kernel& kernel = pack_kernel(call, static_cast<std::uint32_t>(std::min<std::uint64_t>(turns, UINT32_MAX)));
      MPIX_CHECK_GPU(gpu_launch(kernel.function, dim3(call.parts), pack_movers + pack_askers, &call, sizeof call,
                                stream, launch.captured && kernel.may_be_dependent));
      return;
    }
  if (call.half != CallHalf::whole) {  // behind a guard a stream has waited: nothing is gained by starting early
    MPIX_CHECK_GPU(
        gpu_launch(guarded_kernel().function, dim3(call.parts), collective_threads, &call, sizeof call, stream, false));
    return;
  }
  const std::uint32_t small = small_words(call);
  const Kernel& kernel = call.direct ? direct_kernel() : small ? small_kernel(call, small) : kernel_by_lines();
  unsigned threads = direct_threads(call);
  if (!call.direct) threads = line_threads(call, small ? small : words_of(call.element));
  if (small) threads += asking_threads;
  // Outside of graphs it does not depend on what is in front; see Launcher::launch_posts.
  MPIX_CHECK_GPU(gpu_launch(kernel.function, dim3(call.parts), threads, &call, sizeof call, stream,
                            launch.captured && kernel.may_be_dependent));
}

/// Small steps are one block's, with all phases. Else those that move data have several blocks, and each is a launch.
inline void launch_rail(const RailLaunch& launch, gpuStream_t stream) {
  constexpr std::uint64_t most_of_a_block = 64 * 1024, most_blocks = 32;
  const RailStep& all = launch.step;
  const RailPlaces& p = all.places;
  const auto launch_phases = [&](std::uint32_t phases, std::uint64_t bytes) {
    if ((all.phases & phases) == 0) return;
    RailStep step = all;
    step.phases = all.phases & phases;
    const std::uint64_t blocks = std::clamp<std::uint64_t>(bytes / (most_of_a_block / 2), 1, most_blocks);
    MPIX_CHECK_GPU(gpu_launch(rail_kernel().function, dim3(static_cast<unsigned>(blocks)), collective_threads, &step,
                              sizeof step, stream, launch.captured && rail_kernel().may_be_dependent));
  };
  const std::uint64_t packs = all.does(RailStep::pack) ? p.locals * p.columns * all.bytes : 0;
  const std::uint64_t fills = all.does(RailStep::fill) ? p.partners * all.filling.blocks * all.bytes : 0;
  const bool by_rank = all.taking.how == RailStep::Take::combine_ranks || all.taking.how == RailStep::Take::ranks;
  const std::uint64_t takes = all.does(RailStep::take) ? (by_rank ? p.ranks : p.nodes) * all.bytes : 0;
  if (packs + fills + takes <= most_of_a_block) return launch_phases(all.phases, 0);
  launch_phases(RailStep::pack, packs);
  launch_phases(RailStep::fill, fills);
  launch_phases(RailStep::meet, 0);
  launch_phases(RailStep::take, takes);
  launch_phases(RailStep::leave, 0);
}

}  // namespace GPU_NAMESPACE
}  // namespace mpix
