// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/collective_launch.h"
#include "device/device.h"
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
/// Of a thread.
constexpr std::uint32_t most_small_words(std::uint32_t ranks) { return ranks <= 2 ? 4 : ranks <= 4 ? 2 : 1; }
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

/// Of a block. With half of them a multiprocessor has room for two, whatever registers they take (places.h). One that
/// waits for room keeps all launches behind it from theirs, so that holds for those, too, that wait for no peer.
inline std::uint32_t most_threads_of(std::uint32_t sharers) {
  return sharers > 1 ? collective_threads / 2 : collective_threads;
}
/// See places.h.
inline std::uint32_t places_of(std::uint32_t blocks, std::uint32_t sharers) {
  return sharers > 1 ? blocks : 2 * blocks;
}

/// So many words at a time each.
inline unsigned line_threads(const Collective& c, std::uint64_t words_of_a_thread, std::uint32_t most) {
  constexpr std::uint64_t warps = 64;  // as wide as any vendor's warp
  const std::uint64_t words = c.chunk_words / c.parts / words_of_a_thread;
  return static_cast<unsigned>(std::clamp<std::uint64_t>((words + warps - 1) / warps * warps, warps, most));
}

struct SmallShape {
  const Kernel* kernel = nullptr;  ///< null: it is no small call
  unsigned threads = 0;
};

/// With as few words a thread as threads find room for.
inline SmallShape small_shape(const Collective& c, std::uint32_t sharers) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 8 == 0; };
  const bool is_usual = !c.combines() || c.combines_usually();
  if (!is_usual || c.ranks() < 2 || c.ranks() > Collective::most_near || c.bytes % 8 != 0 ||
      c.bytes / 8 > c.chunk_words || !is_aligned(c.send) || !is_aligned(c.recv))
    return {};
  for (std::uint32_t words = 1; words <= most_small_words(c.ranks()); words *= 2) {
    if (c.chunk_words / c.parts > words * collective_threads) continue;
    const Kernel& kernel = small_kernel(c, words);
    const unsigned threads = line_threads(c, words, collective_threads) + asking_threads;
    if (sharers == 1 || kernel.takes_a_half(threads)) return {&kernel, threads};
  }
  return {};
}

inline void launch_collective(const CollectiveLaunch& launch, gpuStream_t stream) {
  Collective call = launch.call;
  const std::uint32_t most_threads = most_threads_of(launch.sharers);
  // Outside of graphs it does not depend on what is in front; see Launcher::launch_posts.
  const auto run = [&](const Kernel& kernel, std::uint32_t blocks, unsigned threads, auto& arguments, Collective& its) {
    CallRoom::Neighbours neighbours{true, true};
    if (launch.capture != 0 && launch.room)
      neighbours = launch.room->neighbours(launch.capture, places_of(blocks, launch.sharers));
    its.lets_next_start = neighbours.lets_next_start;
    MPIX_CHECK_GPU(gpu_launch(kernel.function, dim3(blocks), threads, &arguments, sizeof arguments, stream,
                              launch.capture != 0 && kernel.may_be_dependent && neighbours.starts_early));
  };
  if (launch.ways.count > 0) {
    ChosenArguments arguments{call, launch.ways};
    return run(chosen_kernel(), launch.ways.launched, most_threads, arguments, arguments.call);
  }
  if (launch.tree.count > 0) {
    TreeArguments arguments{call, launch.tree};
    return run(tree_kernel(), call.parts, most_threads, arguments, arguments.call);
  }
  if constexpr (gpu_has_packs)
    if (call.packed) {
      const std::uint64_t packs = ((call.bytes + 7) / 8 + Pack::words - 1) / Pack::words;
      const std::uint64_t turns = (packs * Pack::lanes + call.parts * pack_movers - 1) / (call.parts * pack_movers);
      const Kernel& kernel = pack_kernel(call, static_cast<std::uint32_t>(std::min<std::uint64_t>(turns, UINT32_MAX)));
      return run(kernel, call.parts, pack_movers + pack_askers, call, call);
    }
  if (call.half != CallHalf::whole) {  // behind a guard a stream has waited: nothing is gained by starting early
    MPIX_CHECK_GPU(
        gpu_launch(guarded_kernel().function, dim3(call.parts), most_threads, &call, sizeof call, stream, false));
    return;
  }
  if (call.direct) return run(direct_kernel(), call.parts, most_threads, call, call);
  if (const SmallShape small = small_shape(call, launch.sharers); small.kernel)
    return run(*small.kernel, call.parts, small.threads, call, call);
  run(kernel_by_lines(), call.parts, line_threads(call, words_of(call.element), most_threads), call, call);
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
    const auto blocks =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / (most_of_a_block / 2), 1, most_blocks));
    CallRoom::Neighbours neighbours{true, true};
    if (launch.capture != 0 && launch.room)
      neighbours = launch.room->neighbours(launch.capture, places_of(blocks, launch.sharers));
    step.lets_next_start = neighbours.lets_next_start;
    MPIX_CHECK_GPU(gpu_launch(rail_kernel().function, dim3(blocks), most_threads_of(launch.sharers), &step, sizeof step,
                              stream,
                              launch.capture != 0 && rail_kernel().may_be_dependent && neighbours.starts_early));
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
